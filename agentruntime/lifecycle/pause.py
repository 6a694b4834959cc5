"""What a person must answer is asked, and the lease is given back, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q

from agentruntime.crash import crash_point
from agentruntime.dispatch import ring_after_commit, ring_later
from agentruntime.lifecycle.finish import close_questions
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen, StepRecord, writing
from agentruntime.lifecycle.results import Waiting
from agentruntime.lifecycle.stop import stop_locked
from agentruntime.models import (
    SETTLED,
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptStatus,
    Lease,
    Run,
    RunStatus,
    ToolExecution,
)
from agentruntime.models.transactions import durably
from agentruntime.signals import interrupt_closed, interrupt_opened


def pause_run(
    lease: Lease,
    waiting: Waiting,
    unsaved: Sequence[StepRecord] = (),
    expected: int | None = None,
) -> str:
    """Open the questions that are not open yet and give the run back; return its new status.

    What is open in the scopes that the step has looked at and was not asked this time is withdrawn.
    A run of whose questions one was answered or closed meanwhile is queued, not interrupted. One
    that is to stop asks nothing more and ends.
    """
    return durably(lambda: _pause(lease, waiting, unsaved, expected))


def _pause(
    lease: Lease, waiting: Waiting, unsaved: Sequence[StepRecord], expected: int | None
) -> str:
    run = Run.objects.select_for_update().filter(pk=lease.run_id).first()
    if run is not None and has_let_go(run, lease):
        return run.status  # the commit had landed, only its answer was lost
    run = Run.held(lease)
    if run.stop_requested_at is not None:
        stop_locked(run, lease.fencing_token, unsaved)
        return run.status
    with writing(run.thread_id, run.pk) as pen:
        if expected is not None:
            pen.expect(expected)
        for step in unsaved:
            pen.append(step, lease.fencing_token)
        fresh, has_moved_on = withdraw_and_open(run, waiting.questions, waiting.scopes)
        has_moved_on = has_moved_on or _has_ended(waiting.calls)
        if has_moved_on or not Interrupt.objects.filter(run=run, status="open").exists():
            run.move_to(RunStatus.QUEUED, attempts=0)
            pen.tell("run.queued", reason="answered")
            ring_after_commit(run.pk)
        elif waiting.wake_in is not None:
            run.move_to(RunStatus.QUEUED, attempts=0, wake_at=DatabaseTime(waiting.wake_in))
            _tell(pen, run, fresh)
        else:
            run.move_to(RunStatus.INTERRUPTED, attempts=0)
            _tell(pen, run, fresh)
        transaction.on_commit(lambda: crash_point("A1"))
    return run.status


def _has_ended(calls: Sequence[int]) -> bool:
    """Say whether a call that goes on elsewhere has its outcome by now."""
    return bool(calls) and ToolExecution.objects.filter(pk__in=calls, status__in=SETTLED).exists()


def has_let_go(run: Run, lease: Lease) -> bool:
    """Say whether the holder of `lease` has given this locked run back already."""
    return run.fencing_token == lease.fencing_token and run.status in (
        RunStatus.INTERRUPTED,
        RunStatus.QUEUED,
    )


def withdraw(lease: Lease, scopes: Sequence[str]) -> None:
    """Close what is still open in scopes whose step has come to its end."""
    asked = {"run_id": lease.run_id, "scope__in": scopes, "status": InterruptStatus.OPEN}
    if not Interrupt.objects.filter(**asked).exists():
        return  # as nearly always: only the holder of the lease opens any
    durably(lambda: close_questions(Run.held(lease), scope__in=scopes))


def withdraw_and_open(
    run: Run, questions: Sequence[Question], scopes: Sequence[str]
) -> tuple[list[Interrupt], bool]:
    """Make the open questions of `scopes` exactly these; return those that are new, and whether one
    of the questions is not open any more.
    """
    keys = {(one.scope, one.digest, one.occurrence) for one in questions}
    rows = Interrupt.objects.select_for_update().filter(
        run=run, scope__in=scopes, status__in=(InterruptStatus.OPEN, InterruptStatus.ANSWERED)
    )
    there: dict[tuple[str, str, int], str] = {}
    for row in rows.order_by("created_at"):
        key = (row.scope, row.digest, row.occurrence)
        there[key] = row.status
        if row.status == InterruptStatus.OPEN and key not in keys:
            row.status = InterruptStatus.CANCELLED
            row.save(update_fields=["status"])
            interrupt_closed.send(sender=Interrupt, interrupt=row)
    fresh, has_moved_on = [], False
    for one in questions:
        status = there.get((one.scope, one.digest, one.occurrence))
        if status is None and one.kept is None:
            fresh.append(_open(run, one))
        elif status != InterruptStatus.OPEN:  # answered, or expired, since the step looked
            has_moved_on = True
    return fresh, has_moved_on


def _open(run: Run, question: Question) -> Interrupt:
    interrupt = Interrupt.objects.create(
        thread_id=run.thread_id,
        run=run,
        tool_execution_id=question.tool_execution_id,
        kind=question.kind,
        scope=question.scope,
        digest=question.digest,
        occurrence=question.occurrence,
        payload=question.payload,
        message=question.message,
        response_schema=question.response_schema,
        expires_at=question.expires_at,
    )
    if question.tool_execution_id is not None:
        ToolExecution.objects.filter(
            Q(status=CallStatus.PENDING) | Q(status=CallStatus.RUNNING),
            pk=question.tool_execution_id,
        ).update(status=CallStatus.INTERRUPTED)
    interrupt_opened.send(sender=Interrupt, interrupt=interrupt)
    return interrupt


def _tell(pen: Pen, run: Run, fresh: Sequence[Interrupt]) -> None:
    told: list[dict[str, Any]] = [
        {"id": str(one.pk), "kind": one.kind, "message": one.message, "payload": one.payload}
        for one in fresh
    ]
    pen.tell("run.interrupted", interrupts=told)


def give_back(
    lease: Lease,
    wake_in: float | None = None,
    count_claim: bool = True,
    calls: Sequence[int] = (),
) -> None:
    """Queue a held run again: its time slice is over, its worker ends, or it waits `wake_in`
    seconds, unless one of `calls` has ended or the run is to stop.
    """

    def work() -> None:
        run = Run.objects.select_for_update().filter(pk=lease.run_id).first()
        if run is not None and has_let_go(run, lease):
            return  # the commit had landed, only its answer was lost
        run = Run.held(lease)
        changes: dict[str, Any] = {} if count_claim else {"attempts": max(run.attempts - 1, 0)}
        is_due = run.stop_requested_at is not None or _has_ended(calls)
        later = None if is_due else wake_in
        if later is not None:
            changes["wake_at"] = DatabaseTime(later)
        run.move_to(RunStatus.QUEUED, **changes)
        if later is None:
            ring_after_commit(run.pk)
        else:
            ring_later(run.pk, later)

    durably(work)
