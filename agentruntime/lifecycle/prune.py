"""Forgetting what has served its time: old events, counts of past rates, sent webhooks."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db.models import Max
from django.dispatch import receiver

from agentruntime.conf import runtime_settings
from agentruntime.models import (
    DeliveryStatus,
    Event,
    RateWindow,
    StatementTime,
    WebhookDelivery,
)
from agentruntime.signals import noticed, swept

EVERY_SECONDS = 60.0
THREADS_AT_ONCE = 500
KEEP_RATES_SECONDS = 2 * 86_400
KEEP_SENT_DAYS = 30

_last = 0.0
_at_work = threading.Lock()


def prune_events(days: float) -> int:
    """Delete the events older than `days`, and return how many.

    Whatever is left of a thread has no gap: what is numbered before an old event goes with it.
    """
    old = Event.objects.filter(at__lt=StatementTime(-days * 86_400)).order_by()
    newest = old.values("thread_id").annotate(last=Max("seq"))[:THREADS_AT_ONCE]
    gone = 0
    for place in newest:
        before = Event.objects.filter(thread_id=place["thread_id"], seq__lte=place["last"])
        gone += before.delete()[0]
    return gone


def prune() -> None:
    """Do all of it once."""
    days = runtime_settings().EVENT_DAYS
    if days is not None and days > 0:
        prune_events(days)
    RateWindow.forget_before(int(time.time()) - KEEP_RATES_SECONDS)
    moment = StatementTime(-KEEP_SENT_DAYS * 86_400)
    WebhookDelivery.objects.filter(status=DeliveryStatus.SENT, sent_at__lt=moment).delete()


@receiver(swept, dispatch_uid="agentruntime.prune")
def prune_now_and_then(**_: Any) -> None:
    """Prune once a minute in each worker process; several at once do no harm."""
    global _last
    if time.monotonic() - _last < EVERY_SECONDS or not _at_work.acquire(blocking=False):
        return
    _last = time.monotonic()
    try:
        prune()
    except Exception as error:  # the sweep has more to do than this
        facts = {"error": repr(error)[:300]}
        noticed.send(None, level="warning", event="pruning failed", facts=facts)
    finally:
        _at_work.release()
