"""The ledger: what is written before a call starts, and what is written when it has come to an
end.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agentruntime.exceptions import Interrupted
from agentruntime.executors import Work, start
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.lifecycle.resume import wake
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    Lease,
    Run,
    ToolExecution,
)
from agentruntime.models.transactions import durably
from agentruntime.signals import call_settled, counted, interrupt_closed, noticed

EVENTS = {
    CallStatus.SUCCEEDED: "tool.finished",
    CallStatus.FAILED: "tool.failed",
    CallStatus.DECLINED: "tool.declined",
    CallStatus.CANCELLED: "tool.failed",
    CallStatus.UNKNOWN: "tool.unknown",
}


def record(lease: Lease, ended: Sequence[tuple[ToolExecution, Outcome]]) -> list[ToolExecution]:
    """Commit how some calls ended, all in one transaction; return their rows as they stand now.

    Not bound to the lease: a result is the truth about the world, also when it comes from a worker
    that was fenced out meanwhile. The first recorded result of a call stays. If recording fails,
    that is told at error level, and the rows are returned with the outcome in memory only.
    """
    try:
        return durably(lambda: _record(lease, ended))
    except Exception as error:
        for row, outcome in ended:
            counted.send(
                sender=None, name="ledger.write_failures", value=1, attributes={"tool": row.tool}
            )
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
            for name, value in fields_of(outcome).items():
                if not hasattr(value, "resolve_expression"):
                    setattr(row, name, value)
        return [row for row, _ in ended]


def _record(lease: Lease, ended: Sequence[tuple[ToolExecution, Outcome]]) -> list[ToolExecution]:
    with writing(lease.thread_id, lease.run_id) as pen:
        return [settle(pen, row, outcome) for row, outcome in ended]


def settle(pen: Pen, row: ToolExecution, outcome: Outcome) -> ToolExecution:
    """Write the outcome into the row unless one is there; return the row as it stands.

    The thread's row is locked by the pen, which orders all writes to its ledger.
    """
    open_row = ToolExecution.objects.filter(
        pk=row.pk,
        status__in=(
            CallStatus.PENDING,
            CallStatus.RUNNING,
            CallStatus.INTERRUPTED,
            CallStatus.UNKNOWN,
        ),
    )
    if not open_row.update(**fields_of(outcome)):
        return ToolExecution.objects.get(pk=row.pk)
    for name, value in fields_of(outcome).items():
        if not hasattr(value, "resolve_expression"):
            setattr(row, name, value)
    pen.tell(EVENTS[CallStatus(outcome.status)], **news_of(row))
    if outcome.status == CallStatus.FAILED:
        counted.send(sender=None, name="tool.errors", value=1, attributes={"tool": row.tool})
    elif outcome.status == CallStatus.UNKNOWN:
        counted.send(sender=None, name="tool.unknown", value=1, attributes={"tool": row.tool})
    call_settled.send(sender=ToolExecution, execution=row)
    return row


def fields_of(outcome: Outcome) -> dict[str, Any]:
    """The columns of a ledger row that an outcome sets."""
    fields: dict[str, Any] = {
        "status": outcome.status,
        "result": outcome.result,
        "state_update": outcome.state_update,
        "error": outcome.error,
    }
    if outcome.status != CallStatus.UNKNOWN:
        fields["finished_at"] = DatabaseTime()
    return fields


def news_of(row: ToolExecution) -> dict[str, Any]:
    """What watchers are told of a call."""
    return {
        "call_key": row.call_key,
        "tool": row.tool,
        "arguments": row.arguments,
        "status": row.status,
        "attempt": row.attempts,
        "result": row.result,
        "error": row.error,
    }


def mark_started(pen: Pen, lease: Lease, row: ToolExecution, *, counts: bool) -> None:
    """Write that a call starts now; `counts` says whether this is another attempt."""
    row.save_fields(
        status=CallStatus.RUNNING,
        attempts=row.attempts + 1 if counts else max(row.attempts, 1),
        fencing_token=lease.fencing_token,
        arguments=row.arguments,
        requested_arguments=row.requested_arguments,
        started_at=DatabaseTime(),
        retry_at=None,
        error=None,
        **({} if row.first_started_at else {"first_started_at": DatabaseTime()}),
    )
    pen.tell("tool.started", **news_of(row))


def record_late(lease: Lease, row: ToolExecution, outcome: Outcome) -> None:
    """Record what a call that was given up brings after all; it settles the question what
    happened.
    """

    def work() -> None:
        run = Run.objects.select_for_update().filter(pk=row.run_id).first()
        if run is None:
            return
        with writing(lease.thread_id, lease.run_id) as pen:
            fresh = ToolExecution.objects.filter(pk=row.pk).first()
            if fresh is None or fresh.status not in (CallStatus.RUNNING, CallStatus.UNKNOWN):
                return
            settle(pen, fresh, outcome)
        asked = Interrupt.objects.select_for_update().filter(
            tool_execution=row, kind=InterruptKind.OUTCOME, status=InterruptStatus.OPEN
        )
        for interrupt in asked:
            interrupt.status = InterruptStatus.CANCELLED
            interrupt.save(update_fields=["status"])
            interrupt_closed.send(sender=Interrupt, interrupt=interrupt)
            run.refresh_from_db()
            wake(run, reason="the call ended after all", interrupt=str(interrupt.pk))

    try:
        durably(work)
    except Exception as error:
        noticed.send(
            sender=None,
            level="error",
            event="a late result could not be recorded",
            facts={"run": row.run_id, "call_key": row.call_key, "error": repr(error)},
        )


def when_late(lease: Lease, row: ToolExecution, read: Any) -> Any:
    """Return what a given-up `Work` calls when it ends after all: it records what came of the
    call.
    """

    def on_late(work: Work) -> None:
        if isinstance(work.error, Interrupted) or _was_cancelled(work.error):
            return
        start(lambda: record_late(lease, row, read(work)), work.inbox)

    return on_late


def _was_cancelled(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, Exception)


def answer_about(row: ToolExecution) -> dict[str, Any] | None:
    """Return what a person said about the last attempt of a call of unknown outcome, or None."""
    said = (
        Interrupt.objects.filter(
            tool_execution=row,
            kind=InterruptKind.OUTCOME,
            status=InterruptStatus.ANSWERED,
            answered_at__gte=row.started_at,
        )
        .order_by("-answered_at")
        .first()
    )
    return said.answer if said else None


def told_outcome(answer: dict[str, Any]) -> Outcome:
    """Return the outcome that a person told: it succeeded with this, or failed with that."""
    if answer["outcome"] == "succeeded":
        return Outcome(CallStatus.SUCCEEDED, result=answer.get("result"))
    detail = answer.get("error") or "a person found that it did not take effect"
    return Outcome(CallStatus.FAILED, error={"code": "TOOL_FAILED_001", "detail": detail})


def outcome_question(row: ToolExecution, provider_says: str = "") -> Question:
    """The question what became of a call that was started and never recorded."""
    payload = {
        "tool": row.tool,
        "arguments": row.arguments,
        "idempotency_key": row.call_key,
        "attempts": row.attempts,
        "started_at": row.started_at.isoformat() if row.started_at else None,
        "provider_says": provider_says or None,
    }
    return Question(
        scope=f"{row.call_key}:outcome",
        payload=payload,
        kind=InterruptKind.OUTCOME,
        message=f"{row.tool} was started and its outcome is not known. What happened?",
        tool_execution_id=row.pk,
    )


def is_readable(row: ToolExecution) -> bool:
    """Say whether a settled row can be read back; one that cannot is no result."""
    try:
        check_json(row.result)
        check_json(row.state_update)
    except NotJson:
        return False
    return row.error is None or (isinstance(row.error, dict) and "detail" in row.error)


def within_key_window(row: ToolExecution, ttl: timedelta | None) -> bool:
    """Say whether the provider still knows the key of a call by now, by the database's clock."""
    if ttl is None or row.first_started_at is None:
        return True
    started_after = DatabaseTime(-ttl.total_seconds())
    return ToolExecution.objects.filter(pk=row.pk, first_started_at__gte=started_after).exists()


def rows_by_key(thread_id: uuid.UUID, keys: Sequence[str]) -> dict[str, ToolExecution]:
    """Return the ledger rows of some calls by key."""
    found = ToolExecution.objects.filter(thread_id=thread_id, call_key__in=keys)
    return {row.call_key: row for row in found}
