"""Adds to `/health/ready` how long the oldest notice that is due has not been sent."""

from __future__ import annotations

from typing import Any

from agentruntime.health import CHECKS, age_of
from agentruntime.models import DatabaseTime
from approvals.models import Notice, NoticeStatus


def notices_lag() -> dict[str, Any]:
    """Return the state and the seconds, as the runtime's own checks do."""
    due = Notice.objects.filter(status=NoticeStatus.DUE, due_at__lt=DatabaseTime())
    return age_of(due, "due_at")


CHECKS["notices_lag"] = notices_lag
