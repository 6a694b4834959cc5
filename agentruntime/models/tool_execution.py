"""`ToolExecution`: the ledger. One row per tool call: its intent before, its outcome after."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from agentruntime.models.run import Run
from agentruntime.models.stored_json import StoredJSON
from agentruntime.models.thread import Thread


class CallStatus(models.TextChoices):
    """How far a call has come."""

    PENDING = "pending", "Not started"
    RUNNING = "running", "Running"
    INTERRUPTED = "interrupted", "Waiting for a person"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    DECLINED = "declined", "Declined"
    UNKNOWN = "unknown", "Outcome unknown"
    CANCELLED = "cancelled", "Cancelled"


SETTLED = (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.DECLINED, CallStatus.CANCELLED)
UNSETTLED = tuple(status for status in CallStatus.values if status not in SETTLED)


class CallKind(models.TextChoices):
    """A call that a model asked for, or a step that code marked with `once()`."""

    CALL = "call", "Tool call"
    ONCE = "once", "Once"


class ToolExecution(models.Model):
    """What was asked, what was started and how often, and what came of it.

    `arguments` are what runs; where a person edited them, `requested_arguments` keep what the model
    asked for. `result` is what the tool returned, `state_update` its deltas, `error` is
    {"code", "detail"}. `is_gated` says that a person had to allow it. `attempts` is counted before
    each start; those before an operator's retry are `forgiven_attempts` and do not park the call
    again.
    """

    id = models.BigAutoField(primary_key=True)
    thread = models.ForeignKey(
        Thread, models.CASCADE, related_name="tool_executions", db_index=False
    )
    run = models.ForeignKey(Run, models.CASCADE, related_name="tool_executions")
    call_key = models.CharField(max_length=600)
    kind = models.CharField(max_length=4, choices=CallKind, default=CallKind.CALL)
    tool_call_id = models.CharField(max_length=255, blank=True, default="")
    node = models.CharField(max_length=100, blank=True, default="")
    version = models.PositiveIntegerField(default=0)
    tool = models.CharField(max_length=200)
    tool_fingerprint = models.CharField(max_length=64, blank=True, default="")
    effect = models.CharField(max_length=13, default="repeatable")
    status = models.CharField(max_length=11, choices=CallStatus, default=CallStatus.PENDING)
    arguments = StoredJSON(default=dict, blank=True)
    requested_arguments = StoredJSON(null=True, blank=True)
    result = StoredJSON(null=True, blank=True)
    state_update = StoredJSON(default=dict, blank=True)
    error = StoredJSON(null=True, blank=True)
    outside = StoredJSON(null=True, blank=True)
    is_gated = models.BooleanField(default=False)
    attempts = models.PositiveSmallIntegerField(default=0)
    forgiven_attempts = models.PositiveSmallIntegerField(default=0)
    fencing_token = models.PositiveBigIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)
    first_started_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_toolexecution"
        constraints = (
            models.UniqueConstraint(
                fields=["thread", "call_key"], name="tool_call_once_per_thread"
            ),
            models.CheckConstraint(
                condition=Q(status__in=CallStatus.values), name="tool_call_status_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(status__in=(CallStatus.RUNNING, CallStatus.UNKNOWN))
                | Q(attempts__gte=1),
                name="started_call_has_attempt",
            ),
        )
        indexes = (
            models.Index(
                fields=["run"], condition=Q(status__in=UNSETTLED), name="unsettled_call_by_run"
            ),
            models.Index(fields=["-id"], condition=Q(status="unknown"), name="unknown_call_by_age"),
        )

    def __str__(self) -> str:
        return f"{self.tool} {self.call_key}"

    @property
    def is_settled(self) -> bool:
        return self.status in SETTLED

    def save_fields(self, **changes: Any) -> None:
        """Write some fields of the row; the caller holds its lock or its run's."""
        type(self).objects.filter(pk=self.pk).update(**changes)
        for name, value in changes.items():
            if not hasattr(value, "resolve_expression"):
                setattr(self, name, value)
