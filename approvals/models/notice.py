"""`Notice`: one message to one recipient about one approval; those not yet sent are the outbox."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from approvals.models.approval import Approval


class Channel(models.TextChoices):
    MAIL = "mail", "Mail"
    WEBHOOK = "webhook", "Signed webhook"
    SLACK = "slack", "Slack"


class NoticeStatus(models.TextChoices):
    DUE = "due", "To be sent"
    SENT = "sent", "Sent"
    DROPPED = "dropped", "Not needed any more"
    DEAD = "dead", "Given up"


class Notice(models.Model):
    """Told once: a row per approval, recipient, channel and round.

    Its `id` travels with the message, so that a repeat after a crash is known as one.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    approval = models.ForeignKey(Approval, models.CASCADE, related_name="notices")
    channel = models.CharField(max_length=7, choices=Channel)
    recipient = models.CharField(max_length=254)
    round = models.PositiveSmallIntegerField(default=0)
    why = models.CharField(max_length=10, default="asked")
    status = models.CharField(max_length=7, choices=NoticeStatus, default=NoticeStatus.DUE)
    due_at = models.DateTimeField()
    tries = models.PositiveSmallIntegerField(default=0)
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["approval", "recipient", "channel", "round"], name="told_once_per_round"
            ),
        )
        indexes = (
            models.Index(
                fields=["due_at"], condition=Q(status=NoticeStatus.DUE), name="due_notice_by_time"
            ),
        )

    def __str__(self) -> str:
        return f"{self.channel} to {self.recipient}"
