"""The ledger: what is written before a call starts, and what is written when it has come to an
end.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from agentruntime.exceptions import LeaseLost
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.record import Pen
from agentruntime.models import UNSETTLED, CallStatus, DatabaseTime, Lease, Run, ToolExecution
from agentruntime.models.transactions import durably
from agentruntime.signals import call_settled, counted

EVENTS = {
    CallStatus.SUCCEEDED: "tool.finished",
    CallStatus.FAILED: "tool.failed",
    CallStatus.DECLINED: "tool.declined",
    CallStatus.CANCELLED: "tool.failed",
    CallStatus.UNKNOWN: "tool.unknown",
}


def settle(pen: Pen, row: ToolExecution, outcome: Outcome, **only: Any) -> ToolExecution:
    """Write the outcome into the row unless one is there; return the row as it stands.

    The thread's row is locked by the pen, which orders all writes to its ledger. `only` are columns
    that the row must have for it. A failure counts only for the attempt that failed: a later one
    may be succeeding right now.
    """
    if outcome.outside is not None:
        return hand_over(row, outcome.outside, **only)
    there: tuple[CallStatus, ...] = (
        CallStatus.PENDING,
        CallStatus.RUNNING,
        CallStatus.INTERRUPTED,
    )
    if outcome.status != CallStatus.UNKNOWN:
        there = (*there, CallStatus.UNKNOWN)
    if outcome.status == CallStatus.FAILED:
        only = {"attempts": row.attempts, **only}
    open_row = ToolExecution.objects.filter(pk=row.pk, status__in=there, **only)
    if not open_row.update(**fields_of(outcome)):
        return ToolExecution.objects.get(pk=row.pk)
    kind, data = news_of_outcome(row, outcome)
    pen.tell(kind, **data)
    announce(row, outcome)
    return row


def announce(row: ToolExecution, outcome: Outcome) -> None:
    """Tell of an outcome that was just written, to operators and other apps."""
    take_over(row, outcome)
    if outcome.status == CallStatus.FAILED:
        counted.send(sender=None, name="tool.errors", value=1, attributes={"tool": row.tool})
    elif outcome.status == CallStatus.UNKNOWN:
        counted.send(sender=None, name="tool.unknown", value=1, attributes={"tool": row.tool})
    call_settled.send(sender=ToolExecution, execution=row)


def hand_over(row: ToolExecution, job: dict[str, Any], **only: Any) -> ToolExecution:
    """Write that a started call goes on elsewhere, unless it has an outcome; return its row.

    `job` is {"kind", "handle", "poll", "every", "deadline"}. The deadline of a call that goes on
    elsewhere already stays.
    """
    outside = {**job, **_deadline(row, job)}
    at_work = ToolExecution.objects.filter(
        pk=row.pk, status__in=(CallStatus.RUNNING, CallStatus.UNKNOWN), **only
    )
    changes = {"status": CallStatus.RUNNING, "outside": outside, "error": None}
    if not at_work.update(**changes, retry_at=DatabaseTime(job["every"])):
        return ToolExecution.objects.get(pk=row.pk)
    row.refresh_from_db(fields=[*changes, "retry_at"])
    return row


def _deadline(row: ToolExecution, job: dict[str, Any]) -> dict[str, Any]:
    if row.outside:
        return {name: row.outside[name] for name in ("deadline", "until")}
    limit = job["deadline"]
    until = None if limit is None else database_now() + timedelta(seconds=limit)
    return {"until": until.isoformat() if until else None}


def database_now() -> datetime:
    """Return the moment by the database's clock."""
    now: datetime = Run.objects.annotate(now=DatabaseTime()).values_list("now", flat=True)[:1][0]
    return now


def take_over(row: ToolExecution, outcome: Outcome) -> None:
    """Set the outcome on the row in memory, the times excepted."""
    for name, value in fields_of(outcome).items():
        if not hasattr(value, "resolve_expression"):
            setattr(row, name, value)


def put_back(lease: Lease, row: ToolExecution, **changes: Any) -> None:
    """Write where a call stands that this worker started and that has no outcome yet.

    Raises `LeaseLost` if another worker has started it since: then it is not this one's any more.
    """

    def work() -> None:
        mine = ToolExecution.objects.filter(
            pk=row.pk,
            fencing_token=lease.fencing_token,
            attempts=row.attempts,
            status__in=UNSETTLED,
        )
        if not mine.update(**changes):
            raise LeaseLost(run=lease.run_id, token=lease.fencing_token)

    durably(work)
    for name, value in changes.items():
        if not hasattr(value, "resolve_expression"):
            setattr(row, name, value)


def fields_of(outcome: Outcome) -> dict[str, Any]:
    """The columns of a ledger row that an outcome sets."""
    fields: dict[str, Any] = {
        "status": outcome.status,
        "result": outcome.result,
        "state_update": outcome.state_update,
        "error": outcome.error,
    }
    if outcome.outside is not None:
        fields["outside"] = {**outcome.outside, "until": None}
    elif outcome.status != CallStatus.UNKNOWN:
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


def news_of_outcome(row: ToolExecution, outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """What watchers are told of a call that has come to this end: the kind of event, its data."""
    came_to = {"status": outcome.status, "result": outcome.result, "error": outcome.error}
    return EVENTS[CallStatus(outcome.status)], {**news_of(row), **came_to}


def mark_started(
    pen: Pen, lease: Lease, row: ToolExecution, *, counts: bool, why: str = ""
) -> None:
    """Write that a call starts now; `counts` says whether this is another attempt, `why` on what
    ground it is started again.
    """
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
    pen.tell("tool.started", **news_of(row), **({"why": why} if why else {}))


def rows_by_key(thread_id: uuid.UUID, keys: Sequence[str]) -> dict[str, ToolExecution]:
    """Return the ledger rows of some calls by key."""
    found = ToolExecution.objects.filter(thread_id=thread_id, call_key__in=keys)
    return {row.call_key: row for row in found}
