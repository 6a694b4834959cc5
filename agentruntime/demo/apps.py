"""The demo as an app of its own: leave it out of `INSTALLED_APPS` and nothing of it is loaded."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Finds the sample agents in `agents.py`; has no tables."""

    name = "agentruntime.demo"
    label = "demo"
    verbose_name = "Demo shop"
