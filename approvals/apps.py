"""The Django app through which a question reaches a person."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    verbose_name = "Approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen to the runtime: what it asks becomes an approval, due times are met."""
        from approvals import checks, due, health, live, receivers  # noqa: F401
