"""The addresses of the API, for a namespace that names its version:

path("api/v1/", include((agentruntime.urls.urlpatterns, "agentruntime"), namespace="v1"))
"""

from django.urls import path
from rest_framework.routers import SimpleRouter

from agentruntime import callback_views, token_views, views, webhook_views

router = SimpleRouter(use_regex_path=False)
router.register("threads", views.ThreadViewSet, basename="thread")
router.register("runs", views.RunViewSet, basename="run")
router.register("interrupts", views.InterruptViewSet, basename="interrupt")
router.register("tokens", token_views.TokenViewSet, basename="token")
router.register("webhooks", webhook_views.WebhookViewSet, basename="webhook")

urlpatterns = [
    *router.urls,
    path("callbacks/<str:token>/", callback_views.CallbackView.as_view(), name="callback"),
]
