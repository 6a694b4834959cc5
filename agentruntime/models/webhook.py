"""`WebhookEndpoint` and `WebhookDelivery`: who outside wants to hear what, and what was sent."""

from __future__ import annotations

import base64
import secrets
import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agentruntime.models.clock import DatabaseTime
from agentruntime.models.sealed import seal, seal_anew, unseal


def new_secret() -> str:
    """Return a fresh signing secret in the form of Standard Webhooks: `whsec_` and base64."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def new_sealed_secret() -> str:
    """Return a fresh signing secret as it is stored."""
    return seal(new_secret())


class WebhookEndpoint(models.Model):
    """An address that is told of events of its owner's threads.

    `kinds` are event types. Secrets are stored sealed. While there is a previous one, deliveries
    carry both signatures.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="agent_webhooks"
    )
    tenant = models.CharField(max_length=100, blank=True, default="")
    url = models.URLField(max_length=500)
    kinds = models.JSONField(default=list)
    sealed_secret = models.CharField(max_length=300, default=new_sealed_secret, editable=False)
    sealed_previous = models.CharField(max_length=300, blank=True, default="", editable=False)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_webhookendpoint"

    def __str__(self) -> str:
        return self.url

    def rotate_secret(self) -> str:
        """Sign with a fresh secret from now on, beside the one in use until the next rotation."""
        fresh = new_secret()
        self.sealed_previous, self.sealed_secret = self.sealed_secret, seal(fresh)
        self.save(update_fields=["sealed_secret", "sealed_previous"])
        return fresh

    def seal_secrets_anew(self) -> None:
        """Store the secrets under today's `SECRET_KEY`, where an older one still opens them."""
        now = {
            name: seal_anew(getattr(self, name)) for name in ("sealed_secret", "sealed_previous")
        }
        before = {name: getattr(self, name) for name in now}
        if now != before:  # nothing is undone that a rotation has stored meanwhile
            type(self).objects.filter(pk=self.pk, **before).update(**now)

    @property
    def secret(self) -> str | None:
        """The secret in use; None where `SECRET_KEY` is not the one that sealed it."""
        return unseal(self.sealed_secret)

    @property
    def previous_secret(self) -> str | None:
        return unseal(self.sealed_previous)

    @property
    def signing_secrets(self) -> list[str]:
        return [one for one in (self.secret, self.previous_secret) if one]


class DeliveryStatus(models.TextChoices):
    """How far a delivery has come."""

    PENDING = "pending", "Pending"
    SENT = "sent", "Sent"
    DEAD = "dead", "Given up"


class WebhookDelivery(models.Model):
    """One message to one endpoint; `id` is the message's id on every attempt."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Not held by the database: a step of a run must not fail because somebody deletes an endpoint.
    endpoint = models.ForeignKey(
        WebhookEndpoint, models.CASCADE, related_name="deliveries", db_constraint=False
    )
    event_key = models.CharField(max_length=60)
    payload = models.JSONField()
    status = models.CharField(max_length=7, choices=DeliveryStatus, default=DeliveryStatus.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    answer = models.CharField(max_length=300, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "agentruntime_webhookdelivery"
        verbose_name_plural = "webhook deliveries"
        constraints = (
            models.UniqueConstraint(
                fields=["endpoint", "event_key"], name="one_delivery_per_endpoint_and_event"
            ),
        )
        indexes = (
            models.Index(
                fields=["due_at"],
                condition=Q(status=DeliveryStatus.PENDING),
                name="pending_delivery_by_due_time",
            ),
        )

    def __str__(self) -> str:
        return f"{self.event_key} {self.status}"

    @classmethod
    def claim(cls, delivery_id: uuid.UUID, for_seconds: float) -> WebhookDelivery | None:
        """Take a due delivery for one attempt, which is counted; None if somebody else has it."""
        due = cls.objects.filter(
            pk=delivery_id, status=DeliveryStatus.PENDING, due_at__lte=DatabaseTime()
        )
        if not due.update(attempts=F("attempts") + 1, due_at=DatabaseTime(for_seconds)):
            return None
        return cls.objects.select_related("endpoint").filter(pk=delivery_id).first()

    def settle(self, status: str, answer: str, retry_in: float = 0.0) -> None:
        """Write how the attempt ended; a pending one is due again in `retry_in` seconds."""
        changes: dict[str, Any] = {"status": status, "answer": answer[:300]}
        if status == DeliveryStatus.PENDING:
            changes["due_at"] = DatabaseTime(retry_in)
        if status == DeliveryStatus.SENT:
            changes["sent_at"] = DatabaseTime()
        type(self).objects.filter(pk=self.pk, attempts=self.attempts).update(**changes)

    def send_again(self) -> bool:
        """Make one that was given up due now, with all its attempts; False if it is not dead."""
        dead = type(self).objects.filter(pk=self.pk, status=DeliveryStatus.DEAD)
        return bool(dead.update(status=DeliveryStatus.PENDING, attempts=0, due_at=DatabaseTime()))
