"""The Django app of the runtime."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class AgentRuntimeConfig(AppConfig):
    name = "agentruntime"
    verbose_name = "Agent runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Declare the actors, connect the listeners and checks, find every `agents.py`."""
        from agentruntime import actors, checks, events, logs, metrics, webhooks  # noqa: F401

        autodiscover_modules("agents")
