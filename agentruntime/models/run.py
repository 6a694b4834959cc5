"""`Run`: one push of a thread from queued to an end or a pause; and `Lease`, the right to write
for it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentruntime.exceptions import LeaseLost, RunNotFound
from agentruntime.models.clock import DatabaseTime, StatementTime
from agentruntime.models.thread import Thread


class RunStatus(models.TextChoices):
    """Where a run stands. `NEXT` below is the table of its legal moves."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    INTERRUPTED = "interrupted", "Waiting for a person"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    STOPPED = "stopped", "Stopped"
    TIMED_OUT = "timed_out", "Timed out"


ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.INTERRUPTED)
ENDED = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.STOPPED, RunStatus.TIMED_OUT)
RETRYABLE = (RunStatus.FAILED, RunStatus.TIMED_OUT)

NEXT: dict[str, tuple[str, ...]] = {
    RunStatus.QUEUED: (RunStatus.RUNNING, RunStatus.STOPPED, RunStatus.FAILED),
    RunStatus.RUNNING: (RunStatus.QUEUED, RunStatus.INTERRUPTED, *ENDED),
    RunStatus.INTERRUPTED: (RunStatus.QUEUED, RunStatus.STOPPED, RunStatus.FAILED),
    RunStatus.FAILED: (RunStatus.QUEUED,),
    RunStatus.TIMED_OUT: (RunStatus.QUEUED,),
    RunStatus.COMPLETED: (),
    RunStatus.STOPPED: (),
}


@dataclass(frozen=True)
class Lease:
    """The right to write for a run: handed out by a claim, carried by every write."""

    run_id: uuid.UUID
    thread_id: uuid.UUID
    fencing_token: int


class RunQuerySet(models.QuerySet["Run"]):
    def active(self) -> RunQuerySet:
        """Runs that have not ended."""
        return self.filter(status__in=ACTIVE)

    def claimable(self) -> RunQuerySet:
        """Runs that nobody works on and that are due: queued, or running on a lapsed lease."""
        queued = Q(status=RunStatus.QUEUED) & (Q(wake_at=None) | Q(wake_at__lte=StatementTime()))
        return self.filter(
            queued | Q(status=RunStatus.RUNNING, lease_expires_at__lt=StatementTime()),
            is_in_line=False,
        )

    def in_line(self) -> RunQuerySet:
        """Runs that wait for another one of their thread to end, the first to come first."""
        return self.filter(status=RunStatus.QUEUED, is_in_line=True).order_by("created_at", "id")


class Run(models.Model):
    """One push of a thread. Whoever writes for it holds its lease, and its row lock while writing.

    `base_version` is the version of the checkpoint that holds its input: what the thread has gone
    on since then, and `branched_steps`, are the run's steps. `attempts` counts the claims since the
    last commit.
    `model_calls`, the tokens and `cost` (US dollars) are what its model calls took; of one that is
    under way, or whose worker died, what was reserved for it. `working_seconds` is how long workers
    have had it, counted where its budget bounds that.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="runs")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="agent_runs",
        db_index=False,  # `run_by_user` begins with it
    )
    graph = models.CharField(max_length=100)
    graph_fingerprint = models.CharField(max_length=16, blank=True, default="")
    status = models.CharField(max_length=12, choices=RunStatus, default=RunStatus.QUEUED)
    config = models.JSONField(default=dict, blank=True)
    idempotency_scope = models.CharField(max_length=64, blank=True, default="")
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    request_digest = models.CharField(max_length=64, blank=True, default="")
    is_in_line = models.BooleanField(default=False)
    kept_input = models.JSONField(null=True, blank=True)
    fencing_token = models.PositiveBigIntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    base_version = models.PositiveIntegerField(default=0)
    branched_steps = models.PositiveIntegerField(default=0)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    wake_at = models.DateTimeField(null=True, blank=True)
    model_calls = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, default=Decimal(0))
    working_seconds = models.FloatField(default=0.0)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_detail = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    is_followed = True
    """Whether a run may stand in line behind this one; false where its end has looked."""
    has_asked = True
    """Whether it may have asked somebody something; false where its end has looked."""
    was_started_before = False
    """Set by `start_run` where an idempotency key returned a run that was there already."""

    class Meta:
        db_table = "agentruntime_run"
        permissions = (("operate_run", "Can stop and retry runs"),)
        constraints = (
            models.UniqueConstraint(
                fields=["thread"],
                condition=Q(status__in=ACTIVE, is_in_line=False),
                name="one_active_run_per_thread",
            ),
            models.UniqueConstraint(
                fields=["idempotency_scope", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_run_per_idempotency_key",
            ),
            models.CheckConstraint(
                condition=Q(status__in=RunStatus.values), name="run_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(status=RunStatus.RUNNING, lease_expires_at__isnull=False)
                | (~Q(status=RunStatus.RUNNING) & Q(lease_expires_at__isnull=True)),
                name="running_run_has_lease",
            ),
            models.CheckConstraint(
                condition=Q(status__in=ENDED, finished_at__isnull=False)
                | (Q(status__in=ACTIVE) & Q(finished_at__isnull=True)),
                name="ended_run_has_finish_time",
            ),
        )
        indexes = (
            models.Index(
                fields=["queued_at"], condition=Q(status=RunStatus.QUEUED), name="queued_run_by_age"
            ),
            models.Index(
                fields=["lease_expires_at"],
                condition=Q(status=RunStatus.RUNNING),
                name="running_run_by_lease",
            ),
            models.Index(fields=["-created_at", "id"], name="run_by_age"),
            models.Index(fields=["user", "-created_at"], name="run_by_user"),
        )

    def __str__(self) -> str:
        return f"{self.graph} {self.id}"

    @classmethod
    def locked(cls, run_id: uuid.UUID) -> Run:
        """Return the run with its row locked. Raises `RunNotFound`."""
        run = cls.objects.select_for_update().filter(pk=run_id).first()
        if run is None:
            raise RunNotFound(run=run_id)
        return run

    @classmethod
    def held(cls, lease: Lease) -> Run:
        """Return the run with its row locked, for the holder of `lease`. Raises `LeaseLost`.

        The fencing token decides. A lease that lapsed but that nobody took over still counts:
        fencing makes that safe, and it saves a needless recovery after a stall of the database.
        """
        run = (
            cls.objects.select_for_update()
            .filter(pk=lease.run_id, fencing_token=lease.fencing_token, status=RunStatus.RUNNING)
            .first()
        )
        if run is None:
            raise LeaseLost(run=lease.run_id, token=lease.fencing_token)
        return run

    def move_to(self, status: str, **changes: Any) -> None:
        """Make a legal change of status and save it; the caller holds the row lock.

        Raises `AssertionError` for a move that `NEXT` does not know: a fault of the runtime.
        """
        assert status in NEXT[self.status], f"{self.status} -> {status}"
        changes["status"] = status
        if status != RunStatus.RUNNING:
            changes.update(lease_expires_at=None, lease_owner="")
        if status in ENDED:
            changes.update(finished_at=DatabaseTime(), wake_at=None)
        elif self.status in ENDED:
            changes.update(finished_at=None, error_code="", error_detail="")
        if status == RunStatus.QUEUED:
            changes.setdefault("queued_at", DatabaseTime())
        self.save_fields(**changes)

    def save_fields(self, **changes: Any) -> None:
        """Write some fields of the row; the caller holds its lock."""
        type(self).objects.filter(pk=self.pk).update(**changes)
        for name, value in changes.items():
            if not hasattr(value, "resolve_expression"):
                setattr(self, name, value)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def lease(self) -> Lease:
        return Lease(self.pk, self.thread_id, self.fencing_token)

    @property
    def usage(self) -> dict[str, Any]:
        """What its model calls took, as JSON; the cost in US dollars as text."""
        return {
            "model_calls": self.model_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": f"{self.cost:f}",
        }

    @property
    def error(self) -> dict[str, str] | None:
        return {"code": self.error_code, "detail": self.error_detail} if self.error_code else None
