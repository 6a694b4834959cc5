"""What a person must answer is asked, and the lease is given back, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q

from agentruntime.dispatch import ring_after_commit
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen, StepRecord, writing
from agentruntime.models import (
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
    questions: Sequence[Question],
    scopes: Sequence[str],
    unsaved: Sequence[StepRecord] = (),
    expected: int | None = None,
) -> str:
    """Open the questions that are not open yet and give the run back; return its new status.

    `scopes` are those that the step has looked at: what is open there and was not asked this time
    is withdrawn. A run whose questions were all answered meanwhile is queued, not interrupted.
    """
    return durably(lambda: _pause(lease, questions, scopes, unsaved, expected))


def _pause(
    lease: Lease,
    questions: Sequence[Question],
    scopes: Sequence[str],
    unsaved: Sequence[StepRecord],
    expected: int | None,
) -> str:
    run = Run.objects.select_for_update().filter(pk=lease.run_id).first()
    if (
        run is not None
        and run.fencing_token == lease.fencing_token
        and run.status
        in (
            RunStatus.INTERRUPTED,
            RunStatus.QUEUED,
        )
    ):
        return run.status  # the commit had landed, only its answer was lost
    run = Run.held(lease)
    with writing(run.thread_id, run.pk) as pen:
        if expected is not None:
            pen.expect(expected)
        for step in unsaved:
            pen.append(step, lease.fencing_token)
        fresh = withdraw_and_open(run, questions, scopes)
        waiting = Interrupt.objects.filter(run=run, status=InterruptStatus.OPEN).count()
        answered = any(_is_answered(run, question) for question in questions)
        status = RunStatus.INTERRUPTED if waiting and not answered else RunStatus.QUEUED
        run.move_to(status, attempts=0)
        if status == RunStatus.INTERRUPTED:
            _tell(pen, run, fresh)
        else:
            pen.tell("run.queued", reason="answered")
            ring_after_commit(run.pk)
    return run.status


def withdraw_and_open(
    run: Run, questions: Sequence[Question], scopes: Sequence[str]
) -> list[Interrupt]:
    """Make the open questions of `scopes` exactly these; return those that are new."""
    keys = {(one.scope, one.digest, one.occurrence) for one in questions}
    rows = Interrupt.objects.select_for_update().filter(
        run=run, scope__in=scopes, status__in=(InterruptStatus.OPEN, InterruptStatus.ANSWERED)
    )
    there = set()
    for row in rows.order_by("created_at"):
        there.add((row.scope, row.digest, row.occurrence))
        if (
            row.status == InterruptStatus.OPEN
            and (row.scope, row.digest, row.occurrence) not in keys
        ):
            row.status = InterruptStatus.CANCELLED
            row.save(update_fields=["status"])
            interrupt_closed.send(sender=Interrupt, interrupt=row)
    return [
        _open(run, one) for one in questions if (one.scope, one.digest, one.occurrence) not in there
    ]


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


def _is_answered(run: Run, question: Question) -> bool:
    return Interrupt.objects.filter(
        thread_id=run.thread_id,
        scope=question.scope,
        digest=question.digest,
        occurrence=question.occurrence,
        status=InterruptStatus.ANSWERED,
    ).exists()


def _tell(pen: Pen, run: Run, fresh: Sequence[Interrupt]) -> None:
    told: list[dict[str, Any]] = [
        {"id": str(one.pk), "kind": one.kind, "message": one.message, "payload": one.payload}
        for one in fresh
    ]
    pen.tell("run.interrupted", interrupts=told)


def give_back(lease: Lease, wake_in: float | None = None, count_claim: bool = True) -> None:
    """Queue a held run again: its time slice is over, its worker ends, or it waits `wake_in`
    seconds.
    """

    def work() -> None:
        run = Run.held(lease)
        changes: dict[str, Any] = {} if count_claim else {"attempts": max(run.attempts - 1, 0)}
        if wake_in is not None:
            changes["wake_at"] = DatabaseTime(wake_in)
        run.move_to(RunStatus.QUEUED, **changes)
        if wake_in is None:
            ring_after_commit(run.pk)

    durably(work)
