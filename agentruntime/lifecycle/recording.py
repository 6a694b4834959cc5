"""Recording how calls ended: at once, or late, or once more when it failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import transaction

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import LeaseLost, ThreadNotFound, ToolTimeout
from agentruntime.executors import Work, start
from agentruntime.graph.masking import mask
from agentruntime.lifecycle.ledger import announce, news_of_outcome, settle, take_over
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.record import writing
from agentruntime.lifecycle.resume import wake
from agentruntime.models import (
    SETTLED,
    CallStatus,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    Lease,
    Run,
    ToolExecution,
)
from agentruntime.models.settle_statement import settle_calls
from agentruntime.models.step_statement import is_supported
from agentruntime.models.transactions import durably
from agentruntime.signals import committed, counted, interrupt_closed, noticed


def record(
    progress: Progress, ended: Sequence[tuple[ToolExecution, Outcome]]
) -> list[ToolExecution]:
    """Commit how some calls ended, all in one transaction; return their rows as they stand now.

    Not bound to the lease: a result is the truth about the world, also when it comes from a worker
    that was fenced out meanwhile. The first recorded result of a call stays. If recording fails,
    that is told at error level, the rows are returned with the outcome in memory only, and
    `record_again` has it. Raises `LeaseLost` if the thread is gone.
    """
    lease = progress.lease
    try:
        rows = durably(lambda: _record(lease, ended))
        for number, (row, outcome) in enumerate(ended):
            if rows[number].outside is not None and outcome.outside is not None:
                continue  # it goes on elsewhere
            if not rows[number].is_settled and outcome.status != CallStatus.UNKNOWN:
                _record_late(lease, row, outcome)  # another worker has the call by now
                rows[number] = ToolExecution.objects.get(pk=row.pk)
        return rows
    except (ThreadNotFound, ToolExecution.DoesNotExist):
        raise LeaseLost(run=lease.run_id, token=lease.fencing_token) from None
    except Exception as error:
        for row, outcome in ended:
            _tell_unrecorded(lease, row, error)
            take_over(row, outcome)
            progress.unrecorded.append((row, outcome))
        return [row for row, _ in ended]


def _tell_unrecorded(lease: Lease, row: ToolExecution, error: Exception) -> None:
    counted.send(sender=None, name="ledger.write_failures", value=1, attributes={"tool": row.tool})
    noticed.send(
        sender=None,
        level="error",
        event="a call completed but could not be recorded; a replay may run it again",
        facts={
            "run": row.run_id,
            "thread": row.thread_id,
            "tool": row.tool,
            "call_key": row.call_key,
            "fencing_token": lease.fencing_token,
            "error": repr(error),
        },
    )


def record_again(progress: Progress) -> None:
    """Record what could not be recorded when it came; what fails again has been told already."""
    kept, progress.unrecorded = progress.unrecorded, []
    for row, outcome in kept:
        try:
            durably(lambda row=row, outcome=outcome: _record(progress.lease, [(row, outcome)]))  # type: ignore[misc]
        except Exception:
            progress.unrecorded.append((row, outcome))


def _record(lease: Lease, ended: Sequence[tuple[ToolExecution, Outcome]]) -> list[ToolExecution]:
    if _record_at_once(lease, ended):
        return [row for row, _ in ended]
    mine = {"fencing_token": lease.fencing_token, "status": CallStatus.RUNNING}
    with writing(lease.thread_id, lease.run_id) as pen:
        return [settle(pen, row, outcome, attempts=row.attempts, **mine) for row, outcome in ended]


def _record_at_once(lease: Lease, ended: Sequence[tuple[ToolExecution, Outcome]]) -> bool:
    """Record outcomes in one statement of the current transaction; say whether it was taken."""
    if not is_supported() or not all(outcome.status in SETTLED for _, outcome in ended):
        return False
    secret = runtime_settings().SECRET_FIELDS
    news = [news_of_outcome(row, outcome) for row, outcome in ended]
    events = [{"type": kind, "data": mask(data, secret)} for kind, data in news]
    calls = [
        {
            "call": row.pk,
            "attempts": row.attempts,
            "status": str(outcome.status),
            "result": outcome.result,
            "state_update": outcome.state_update,
            "error": outcome.error,
        }
        for row, outcome in ended
    ]
    event_count = settle_calls(lease, calls, events)
    if event_count is None:
        return False
    for row, outcome in ended:
        announce(row, outcome)
    hint = {"thread_id": lease.thread_id, "run_id": lease.run_id, "seq": event_count}
    types = [kind for kind, _ in news]
    transaction.on_commit(lambda: committed.send(sender=None, types=types, **hint))
    return True


def record_late(lease: Lease, row: ToolExecution, outcome: Outcome) -> None:
    """Record what a call that was given up brings after all. Never raises.

    It settles the question what happened, and wakes the run that waits on it.
    """
    try:
        _record_late(lease, row, outcome)
    except Exception as error:
        _tell_unrecorded(lease, row, error)


def _record_late(lease: Lease, row: ToolExecution, outcome: Outcome) -> None:
    def work() -> None:
        run = Run.objects.select_for_update().filter(pk=row.run_id).first()
        if run is None:
            return
        with writing(lease.thread_id, lease.run_id) as pen:
            fresh = ToolExecution.objects.filter(pk=row.pk).first()
            if fresh is None or not _is_waited_for(fresh, row):
                return
            if fresh.is_settled and outcome.outside is not None:
                return  # the model was told, and a job is no news about what it did
            if fresh.is_settled:  # it was reported as overdue; now it is known what it did
                fresh.save_fields(status=CallStatus.UNKNOWN)
            is_failure = outcome.status == CallStatus.FAILED
            only = {"attempts": row.attempts} if is_failure else {}
            fresh = settle(pen, fresh, outcome, **only)
        if fresh.is_settled or fresh.outside is not None:
            withdraw_question(run, fresh)

    durably(work)


def _is_waited_for(fresh: ToolExecution, row: ToolExecution) -> bool:
    if fresh.status in (CallStatus.RUNNING, CallStatus.UNKNOWN):
        return True
    is_overdue = bool(fresh.error) and fresh.error["code"] == ToolTimeout.code
    return is_overdue and fresh.attempts == row.attempts


def withdraw_question(run: Run, row: ToolExecution) -> None:
    """Close the open question what became of a call, and wake the locked run that waits on it."""
    asked = Interrupt.objects.select_for_update().filter(
        tool_execution=row, kind=InterruptKind.OUTCOME, status=InterruptStatus.OPEN
    )
    for interrupt in asked:
        interrupt.status = InterruptStatus.CANCELLED
        interrupt.save(update_fields=["status"])
        interrupt_closed.send(sender=Interrupt, interrupt=interrupt)
        wake(run, reason="the call ended after all", interrupt=str(interrupt.pk))


def when_late(
    lease: Lease, row: ToolExecution, read: Callable[[Work], Outcome | None]
) -> Callable[[Work], None]:
    """Return what a given-up `Work` calls when it ends after all: it records what came of the
    call. `read` gives None for what says nothing about it.
    """

    def on_late(work: Work) -> None:
        if work.error is not None and not isinstance(work.error, Exception):
            return  # it was cancelled, or wanted to ask something
        outcome = read(work)
        if outcome is not None:
            start(lambda: record_late(lease, row, outcome), work.inbox)

    return on_late
