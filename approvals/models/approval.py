"""`Approval`: a question before people. It outlives the thread that asked it."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from agentruntime.models import DatabaseTime, Interrupt, StatementTime
from approvals.exceptions import ApprovalNotFound


class Status(models.TextChoices):
    """What became of the question. Only a person's answer is called approved or declined."""

    PENDING = "pending", "Waiting"
    APPROVED = "approved", "Approved"
    DECLINED = "declined", "Declined"
    EXPIRED = "expired", "Expired, nobody answered"
    CANCELLED = "cancelled", "Withdrawn"
    SUPERSEDED = "superseded", "Superseded"


class Outcome(models.TextChoices):
    """What became of the call that was asked about."""

    NONE = "", "Not yet known"
    EXECUTED = "executed", "Executed"
    FAILED = "failed", "Failed"
    UNKNOWN = "unknown", "Outcome unknown"
    NOT_EXECUTED = "not_executed", "Not executed"


class ApprovalQuerySet(models.QuerySet["Approval"]):
    def pending(self) -> ApprovalQuerySet:
        """Those that wait for a person."""
        return self.filter(status=Status.PENDING)

    def overdue(self) -> ApprovalQuerySet:
        """Those that wait although their time is over."""
        return self.pending().filter(expires_at__lt=StatementTime())


class Approval(models.Model):
    """One question. `arguments` and `digest` are what would run, `asked_*` what the agent wanted.

    `edits` are the fields that people changed; `rule` is the rule as it was when it was asked.
    Secrets are masked in every column here; what runs stands in the runtime's own tables.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    interrupt = models.OneToOneField(
        Interrupt, models.SET_NULL, null=True, blank=True, related_name="approval"
    )
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    title = models.TextField(blank=True, default="")
    tool = models.CharField(max_length=200)
    call_key = models.CharField(max_length=600, blank=True, default="")
    graph = models.CharField(max_length=100, blank=True, default="")
    node = models.CharField(max_length=100, blank=True, default="")
    run_id = models.UUIDField()
    thread_id = models.UUIDField()
    tool_execution_id = models.BigIntegerField(null=True, blank=True)
    tenant = models.CharField(max_length=100, blank=True, default="")
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    requester_name = models.CharField(max_length=254, blank=True, default="")

    digest = models.CharField(max_length=64)
    arguments = models.JSONField(default=dict, blank=True)
    asked_digest = models.CharField(max_length=64)
    asked_arguments = models.JSONField(default=dict, blank=True)
    edits = models.JSONField(default=dict, blank=True)
    editor = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )

    rule = models.JSONField(default=dict, blank=True)
    permission = models.CharField(max_length=255, blank=True, default="")
    group = models.CharField(max_length=150, blank=True, default="")
    approvers = models.PositiveSmallIntegerField(default=1)
    amount = models.DecimalField(max_digits=30, decimal_places=6, null=True, blank=True)
    currency = models.CharField(max_length=20, blank=True, default="")
    target = models.TextField(blank=True, default="")
    expires_at = models.DateTimeField(null=True, blank=True)

    claimed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    claimed_at = models.DateTimeField(null=True, blank=True)
    notify_at = models.DateTimeField(null=True, blank=True)
    remind_at = models.DateTimeField(null=True, blank=True)
    escalate_at = models.DateTimeField(null=True, blank=True)
    escalated_to = models.CharField(max_length=150, blank=True, default="")
    rounds = models.PositiveSmallIntegerField(default=0)

    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    superseded_by = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="supersedes"
    )
    outcome = models.CharField(max_length=12, choices=Outcome, default=Outcome.NONE, blank=True)
    outcome_at = models.DateTimeField(null=True, blank=True)
    outcome_detail = models.TextField(blank=True, default="")

    # The database's time when the row was read by `locked()`.
    now: datetime

    objects = ApprovalQuerySet.as_manager()

    class Meta:
        permissions = (
            ("decide_approval", "Can decide approvals whose rule names nobody else"),
            ("decide_refund", "Can decide refunds"),
            ("export_decisions", "Can export the record of decisions"),
            ("view_dashboard", "Can see how the queue does"),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(status__in=Status.values), name="approval_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(status=Status.PENDING, closed_at__isnull=True)
                | (~Q(status=Status.PENDING) & Q(closed_at__isnull=False)),
                name="closed_approval_has_time",
            ),
        )
        indexes = (
            models.Index(
                fields=["created_at"], condition=Q(status="pending"), name="pending_approval_by_age"
            ),
            models.Index(
                fields=["expires_at"],
                condition=Q(status="pending"),
                name="pending_approval_by_expiry",
            ),
            models.Index(fields=["-created_at", "-id"], name="approval_by_age"),
            models.Index(fields=["status", "closed_at"], name="approval_by_end"),
            models.Index(fields=["tool_execution_id"], name="approval_by_call"),
            models.Index(fields=["thread_id", "created_at"], name="approval_by_thread"),
            models.Index(fields=["requester", "created_at"], name="approval_by_requester"),
            models.Index(
                fields=["notify_at"], condition=Q(status="pending"), name="approval_by_notice"
            ),
            models.Index(
                fields=["remind_at"], condition=Q(status="pending"), name="approval_by_reminder"
            ),
            models.Index(
                fields=["escalate_at"], condition=Q(status="pending"), name="approval_by_escalation"
            ),
        )

    def __str__(self) -> str:
        return self.title or self.tool

    @classmethod
    def locked(cls, approval_id: uuid.UUID) -> Approval:
        """Return the approval with its row locked and `now`, the database's time, read with it."""
        found = (
            cls.objects.select_for_update()
            .annotate(now=DatabaseTime())
            .filter(pk=approval_id)
            .first()
        )
        if found is None:
            raise ApprovalNotFound(approval=approval_id)
        return found

    def save_fields(self, **changes: Any) -> None:
        """Write some fields of the row; the caller holds its lock."""
        type(self).objects.filter(pk=self.pk).update(**changes)
        for name, value in changes.items():
            if not hasattr(value, "resolve_expression"):
                setattr(self, name, value)

    def close(self, status: str, **changes: Any) -> None:
        """End the question; the caller holds the lock. A closed one stays as it is closed."""
        changes.setdefault("closed_at", DatabaseTime())
        for name in ("claimed_by", "claimed_at", "notify_at", "remind_at", "escalate_at"):
            changes.setdefault(name, None)
        self.save_fields(status=status, **changes)

    @property
    def is_pending(self) -> bool:
        return self.status == Status.PENDING

    @property
    def is_edited(self) -> bool:
        return bool(self.edits)

    @property
    def editable(self) -> tuple[str, ...]:
        """The names of the arguments that a person may change."""
        return tuple(self.rule.get("editable") or ())

    @property
    def declines_on_expiry(self) -> bool:
        return self.rule.get("on_expiry", "decline") != "wait"

    @property
    def shown_amount(self) -> str:
        """The money that would move, with every digit it was given with; "" where there is none."""
        return str(self.rule.get("edited_amount") or self.rule.get("amount") or "")

    @property
    def is_late(self) -> bool:
        """Whether it waits although its time is over; by this machine's clock, for the eye."""
        return self.is_pending and self.expires_at is not None and self.expires_at < timezone.now()

    @property
    def told(self) -> str:
        """What became of it, in words that never say more than happened."""
        if self.status != Status.APPROVED:
            return Status(self.status).label
        said = "Edited and approved" if self.edits else "Approved"
        return f"{said}, {Outcome(self.outcome).label.lower()}"
