"""The websockets of approvals."""

from django.urls import path

from approvals.consumers import ApprovalEvents

websocket_urlpatterns = [path("ws/approvals/", ApprovalEvents.as_asgi())]
