"""Health: `/health/live` (the process answers) and `/health/ready` (it can do its work).

Ready is 503 only where this process cannot serve: without its database. A Redis that is away or
work that waits is `degraded`: the API still takes requests, and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.db.models import F, FloatField, Func, Max, QuerySet
from django.http import HttpRequest, JsonResponse
from django.urls import re_path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentruntime.models import DeliveryStatus, Run, RunStatus, StatementTime, WebhookDelivery

WAITING_TOO_LONG_SECONDS = 30.0
Check = Callable[[], dict[str, Any]]


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """Say that the process answers; nothing else is asked."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Say how the database, Redis, the queue, the sweep and the outbox are."""
    found = {name: _run(check) for name, check in CHECKS.items()}
    if found["database"]["status"] != "ok":
        return JsonResponse({"status": "unavailable", "checks": found}, status=503)
    degraded = any(one["status"] != "ok" for one in found.values())
    return JsonResponse({"status": "degraded" if degraded else "ok", "checks": found})


def _run(check: Check) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = check()
    except Exception as error:
        found = {"status": "failed", "error": type(error).__name__}
    return {"status": "ok", **found, "ms": round((time.monotonic() - began) * 1000, 1)}


def _database() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return {"kind": connection.vendor}


def _redis() -> dict[str, Any]:
    url = getattr(settings, "REDIS_URL", None)
    if not url:
        return {"configured": False}
    with redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()
    return {"configured": True}


def _oldest_queued() -> dict[str, Any]:
    """How long the oldest run waits for a worker."""
    return age_of(Run.objects.filter(status=RunStatus.QUEUED, is_in_line=False), "queued_at")


def _sweep() -> dict[str, Any]:
    """How long the longest lapsed lease has not been taken up again."""
    lapsed = Run.objects.filter(status=RunStatus.RUNNING, lease_expires_at__lt=StatementTime())
    return age_of(lapsed, "lease_expires_at")


def _outbox() -> dict[str, Any]:
    """How long the oldest webhook that is due has not been sent."""
    due = WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING, due_at__lt=StatementTime())
    return age_of(due, "due_at")


class _SecondsSince(Func):
    """Seconds from a stored moment to the database's now."""

    output_field = FloatField()

    def as_postgresql(self, compiler: Any, connection: Any, **more: Any) -> Any:
        template = "EXTRACT(EPOCH FROM (clock_timestamp() - %(expressions)s))"
        return self.as_sql(compiler, connection, template=template, **more)

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        template = "((julianday('now') - julianday(%(expressions)s)) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, **more)


def age_of(rows: QuerySet[Any], since: str) -> dict[str, Any]:
    """Return the seconds since the oldest moment in a column, and whether that is too long."""
    found = rows.aggregate(seconds=Max(_SecondsSince(F(since))))["seconds"]
    seconds = round(max(found or 0.0, 0.0), 1)
    return {"status": "ok" if seconds < WAITING_TOO_LONG_SECONDS else "late", "seconds": seconds}


# Other apps add their own.
CHECKS: dict[str, Check] = {
    "database": _database,
    "redis": _redis,
    "oldest_queued_run": _oldest_queued,
    "sweep_lag": _sweep,
    "outbox_lag": _outbox,
}

urlpatterns = [
    re_path(r"^live/?$", live, name="health-live"),
    re_path(r"^ready/?$", ready, name="health-ready"),
]
