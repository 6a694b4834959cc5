"""`Interrupt`: a durable question that a run waits on; answered once."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentruntime.models.run import Run
from agentruntime.models.thread import Thread
from agentruntime.models.tool_execution import ToolExecution


class InterruptStatus(models.TextChoices):
    """Whether a question still waits."""

    OPEN = "open", "Open"
    ANSWERED = "answered", "Answered"
    EXPIRED = "expired", "Expired"
    CANCELLED = "cancelled", "Cancelled"


class InterruptKind(models.TextChoices):
    """Who asks: code, an approval rule, a call whose outcome nobody knows, a call that the client
    runs.
    """

    QUESTION = "question", "Question"
    APPROVAL = "approval", "Approval"
    OUTCOME = "outcome", "Outcome of a call"
    CLIENT = "client", "Call that the client runs"


class Interrupt(models.Model):
    """One question. Its place is (`scope`, `digest` of the payload, `occurrence` among equals)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="interrupts")
    run = models.ForeignKey(Run, models.CASCADE, related_name="interrupts")
    tool_execution = models.ForeignKey(
        ToolExecution, models.CASCADE, null=True, blank=True, related_name="interrupts"
    )
    kind = models.CharField(max_length=10, choices=InterruptKind, default=InterruptKind.QUESTION)
    scope = models.CharField(max_length=700)
    digest = models.CharField(max_length=64)
    occurrence = models.PositiveIntegerField(default=0)
    payload: Any = models.JSONField(null=True, blank=True)
    message = models.TextField(blank=True, default="")
    response_schema: Any = models.JSONField(null=True, blank=True)
    status = models.CharField(max_length=9, choices=InterruptStatus, default=InterruptStatus.OPEN)
    answer: Any = models.JSONField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_interrupt"
        permissions = (("answer_interrupt", "Can answer questions of runs"),)
        constraints = (
            models.UniqueConstraint(
                fields=["thread", "scope", "digest", "occurrence"],
                condition=Q(status__in=(InterruptStatus.OPEN, InterruptStatus.ANSWERED)),
                name="question_asked_once_per_place",
            ),
            models.CheckConstraint(
                condition=Q(status=InterruptStatus.ANSWERED, answered_at__isnull=False)
                | ~Q(status=InterruptStatus.ANSWERED),
                name="answered_interrupt_has_time",
            ),
        )
        indexes = (
            models.Index(
                fields=["expires_at"],
                condition=Q(status=InterruptStatus.OPEN),
                name="open_interrupt_by_expiry",
            ),
            models.Index(fields=["-created_at", "-id"], name="interrupt_by_age"),
        )

    def __str__(self) -> str:
        return self.message or f"{self.kind} {self.id}"
