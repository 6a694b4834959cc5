"""Webhooks out: what is to be told is stored with the event itself, and sent by the workers' sweep.

A delivery is a row of the transaction that stored its event, so none is lost and none is told of
what never happened. It is sent with the same id until it is taken (Standard Webhooks), after
growing pauses, and given up after a day and a half.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from django.db import connections
from django.dispatch import receiver
from standardwebhooks import Webhook

from agentruntime.models import (
    DatabaseTime,
    DeliveryStatus,
    Event,
    StatementTime,
    Thread,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentruntime.outbound import Refused, post
from agentruntime.signals import counted, noticed, recorded, swept
from agentruntime.stored_events import event_body

KINDS = (
    "run.interrupted",
    "run.completed",
    "run.failed",
    "run.stopped",
    "run.timed_out",
    "approval.requested",
    "approval.decided",
    "approval.expired",
)
PAUSES_SECONDS = (5, 30, 120, 600, 3600, 5 * 3600, 10 * 3600, 20 * 3600)
ATTEMPT_SECONDS = 60.0
MAX_PAYLOAD_BYTES = 16_000
PARALLEL = 4
GONE = 410
UNREADABLE = "The secret cannot be read: SECRET_KEY has changed. Rotate it."

_pool = ThreadPoolExecutor(max_workers=PARALLEL, thread_name_prefix="webhooks")
_places = threading.Semaphore(PARALLEL)


@receiver(recorded, dispatch_uid="agentruntime.webhooks.store")
def store_deliveries(*, thread: Thread, events: Iterable[Event], **_: Any) -> None:
    """Store what the thread's owner wants to hear of these events, in their transaction."""
    wanted = [one for one in events if one.type in KINDS]
    if not wanted or thread.user_id is None:
        return
    endpoints = WebhookEndpoint.objects.filter(
        user_id=thread.user_id, tenant=thread.tenant, is_active=True
    )
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(
            endpoint=endpoint,
            event_key=f"{thread.pk}:{event.seq}",
            payload=payload_of(event),
            due_at=DatabaseTime(),
        )
        for endpoint in endpoints
        for event in wanted
        if event.type in endpoint.kinds
    )


def payload_of(event: Event) -> dict[str, Any]:
    """Return what is sent of an event: small, and without it where its data are large."""
    at = event.at or datetime.now(UTC)
    event.at = at
    body = event_body(event)
    if len(json.dumps(body)) > MAX_PAYLOAD_BYTES:
        body["data"] = {"too_long": True}
    return {"type": event.type, "timestamp": body.pop("at"), "data": body}


@receiver(swept, dispatch_uid="agentruntime.webhooks.send")
def send_due(**_: Any) -> None:
    """Hand what is due to the senders; the sweep itself waits for none of them."""
    due = WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING, due_at__lte=StatementTime())
    for delivery_id in due.order_by("due_at").values_list("pk", flat=True)[: PARALLEL * 2]:
        if not _places.acquire(blocking=False):
            return
        _pool.submit(_send_in_thread, delivery_id)


def _send_in_thread(delivery_id: uuid.UUID) -> None:
    try:
        deliver(delivery_id)
    except Exception as error:  # the row is due again in a minute
        facts = {"delivery": str(delivery_id), "error": f"{type(error).__name__}: {error}"[:300]}
        noticed.send(None, level="error", event="webhook_not_sent", facts=facts)
    finally:
        connections.close_all()
        _places.release()


def deliver(delivery_id: uuid.UUID) -> bool | None:
    """Make one attempt at a delivery that is due; None where somebody else makes it."""
    delivery = WebhookDelivery.claim(delivery_id, ATTEMPT_SECONDS)
    if delivery is None:
        return None
    if not delivery.endpoint.is_active:
        delivery.settle(DeliveryStatus.DEAD, "The endpoint is switched off.")
        return False
    if delivery.endpoint.secret is None:
        delivery.settle(DeliveryStatus.DEAD, UNREADABLE)
        return _told(delivery, "not signed")
    delivery.endpoint.seal_secrets_anew()
    connections.close_all()  # none is held while somebody else's server takes its time
    try:
        status = post(delivery.endpoint.url, *signed(delivery))
        answer = f"HTTP {status}"
    except Refused as error:
        delivery.settle(DeliveryStatus.DEAD, str(error))
        return _told(delivery, "refused")
    except OSError as error:
        status, answer = 0, f"{type(error).__name__}: {error}"
    if 200 <= status < 300:
        delivery.settle(DeliveryStatus.SENT, answer)
        counted.send(None, name="webhooks.sent", value=1, attributes={})
        return True
    if status == GONE or delivery.attempts > len(PAUSES_SECONDS):
        delivery.settle(DeliveryStatus.DEAD, answer)
        return _told(delivery, "given up")
    delivery.settle(DeliveryStatus.PENDING, answer, PAUSES_SECONDS[delivery.attempts - 1])
    return False


def _told(delivery: WebhookDelivery, why: str) -> bool:
    facts = {"delivery": str(delivery.pk), "endpoint": str(delivery.endpoint_id)}
    noticed.send(None, level="warning", event=f"webhook {why}", facts=facts)
    counted.send(None, name="webhooks.dead", value=1, attributes={})
    return False


def signed(delivery: WebhookDelivery) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an attempt; one signature for each secret in use."""
    body = json.dumps(delivery.payload, separators=(",", ":"))
    ident, now = f"msg_{delivery.pk.hex}", datetime.now(UTC)
    signatures = [
        Webhook(secret).sign(ident, now, body) for secret in delivery.endpoint.signing_secrets
    ]
    return body.encode(), {
        "Content-Type": "application/json",
        "User-Agent": "agentruntime-webhooks",
        "webhook-id": ident,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
