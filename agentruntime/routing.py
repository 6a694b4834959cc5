"""The addresses of the websockets, and the gate that stands before them."""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack
from django.urls import path

from agentruntime.consumers import RunEvents, ThreadEvents
from agentruntime.socket_gate import SocketGate

websocket_urlpatterns = [
    path("ws/runs/<uuid:run_id>/", RunEvents.as_asgi()),
    path("ws/threads/<uuid:thread_id>/", ThreadEvents.as_asgi()),
]


def guarded(application: Any) -> Any:
    """Return `application` behind the origin check and both ways to say who one is."""
    return AuthMiddlewareStack(SocketGate(application))
