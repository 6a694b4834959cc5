"""The sweep: lapsed leases, lost messages, passed deadlines; and a failed run's second chance."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Coalesce

from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.dispatch import ring_after_commit
from agentruntime.exceptions import IllegalTransition
from agentruntime.executors import now
from agentruntime.graph import get_graph
from agentruntime.lifecycle.record import tell
from agentruntime.lifecycle.resume import wake
from agentruntime.lifecycle.settings import check_config, laid_over
from agentruntime.models import (
    ACTIVE,
    RETRYABLE,
    CallKind,
    CallStatus,
    Checkpoint,
    DatabaseTime,
    Interrupt,
    InterruptStatus,
    Run,
    RunStatus,
    StatementTime,
    Thread,
    ToolExecution,
)
from agentruntime.models.transactions import durably
from agentruntime.signals import counted, interrupt_closed, noticed, swept

BATCH = 200


class Outage:
    """Knows whether this process has just been without a database, by when it last swept."""

    def __init__(self) -> None:
        self._swept_at: float | None = None
        self._over_at = -math.inf

    def is_just_over(self) -> bool:
        """Note that the database was reached; say whether that was not so until lately."""
        seconds, moment = runtime_settings().LEASE_SECONDS, now()
        if self._swept_at is not None and moment - self._swept_at > seconds / 2:
            self._over_at = moment
        self._swept_at = moment
        return moment - self._over_at < seconds


def sweep(outage: Outage | None = None) -> list[uuid.UUID]:
    """Let passed deadlines take effect, and return the runs that somebody should take up, oldest
    first.

    Any number of processes may sweep at once, at any moment. One that sweeps again and again keeps
    an `outage`: after the database was away, lapsed leases are left alone for the length of one,
    for whoever holds them could not prolong them either, and does so now.
    """
    expire_questions()
    swept.send(sender=None)
    spares_lapsed = outage is not None and outage.is_just_over()
    late_by = ExpressionWrapper(
        DatabaseTime() - Coalesce("wake_at", "lease_expires_at", "queued_at"), DurationField()
    )
    waiting = Run.objects.claimable().annotate(late_by=late_by).order_by("queued_at")
    if spares_lapsed:
        waiting = waiting.filter(status=RunStatus.QUEUED)
    found = list(waiting.values_list("pk", "late_by")[:BATCH])
    lag = max((late.total_seconds() for _, late in found), default=0.0)
    counted.send(sender=None, name="sweep.lag", value=max(lag, 0.0), attributes={})
    return [pk for pk, _ in found]


def recover_runs() -> list[uuid.UUID]:
    """Do one sweep and ring the doorbell for what it found; return the runs."""
    found = sweep()
    for run_id in found:
        ring_after_commit(run_id)
    return found


def expire_questions() -> None:
    """End every open question whose time is over, each in a transaction of its own."""
    due = Interrupt.objects.filter(status=InterruptStatus.OPEN, expires_at__lte=StatementTime())
    for interrupt_id, run_id in due.order_by("expires_at").values_list("pk", "run_id")[:BATCH]:
        try:
            durably(lambda run_id=run_id, pk=interrupt_id: _expire(run_id, pk))  # type: ignore[misc]
        except Exception as error:  # one bad row never stops the sweep
            noticed.send(
                sender=None,
                level="error",
                event="a question could not be expired",
                facts={"interrupt": interrupt_id, "error": repr(error)},
            )


def _expire(run_id: uuid.UUID, interrupt_id: uuid.UUID) -> None:
    run = Run.objects.select_for_update(skip_locked=True).filter(pk=run_id).first()
    if run is None:
        return
    interrupt = (
        Interrupt.objects.select_for_update()
        .filter(pk=interrupt_id, status=InterruptStatus.OPEN, expires_at__lte=DatabaseTime())
        .first()
    )
    if interrupt is None:
        return
    interrupt.status = InterruptStatus.EXPIRED
    interrupt.save(update_fields=["status"])
    interrupt_closed.send(sender=Interrupt, interrupt=interrupt)
    crash_point("T1")
    wake(run, reason="expired", interrupt=str(interrupt.pk))


def retry_run(*, run_id: uuid.UUID, config: Mapping[str, Any] | None = None) -> Run:
    """Let a failed or timed out run go on from its last checkpoint; what it finished stays
    finished.

    `config` is laid over the run's own (a higher `recursion_limit` or budget). Raises
    `RunNotFound`, `UnknownGraph`, `InvalidConfig`, and `IllegalTransition` for a run that did not
    fail or whose thread has gone on since.
    """
    changes = check_config(config)

    tries = 0

    def work() -> Run:
        nonlocal tries
        tries += 1
        run = Run.locked(run_id)
        if tries > 1 and run.status in ACTIVE:
            return run  # the last try had landed, only the answer to its COMMIT was lost
        if run.status not in RETRYABLE:
            raise IllegalTransition(run=run.pk, status=run.status, wanted="retried")
        if _has_gone_on(run):
            raise IllegalTransition(
                run=run.pk, status="not the last of its thread", wanted="retried"
            )
        get_graph(run.graph)
        _give_second_chance(run)
        run.move_to("queued", attempts=0, config=laid_over(run.config, changes))
        tell(run.thread_id, run.pk, [("run.queued", {"reason": "retried"})])
        ring_after_commit(run.pk)
        return run

    return durably(work)


def _has_gone_on(run: Run) -> bool:
    """Say whether the thread is another run's by now."""
    thread = Thread.locked(run.thread_id)
    head = Checkpoint.objects.filter(thread=thread, version=thread.head_version)
    others = Run.objects.active().filter(thread=thread, is_in_line=False)
    return others.exists() or not head.filter(run=run).exists()


def _give_second_chance(run: Run) -> None:
    """What failed without being a result starts afresh: parked calls, and memos that raised."""
    ToolExecution.objects.filter(
        run=run,
        kind=CallKind.CALL,
        status__in=(CallStatus.RUNNING, CallStatus.UNKNOWN, CallStatus.PENDING),
    ).update(retry_at=None, forgiven_attempts=F("attempts"))
    ToolExecution.objects.filter(run=run, kind=CallKind.ONCE, status=CallStatus.FAILED).delete()
