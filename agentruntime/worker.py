"""What a worker process loads: Django, the apps, and with them the broker and its actor."""

import django

django.setup()

from agentruntime.actors import broker  # noqa: E402 - the apps must be ready first

__all__ = ["broker"]
