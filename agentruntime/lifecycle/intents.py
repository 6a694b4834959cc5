"""What is written before a call starts: one ledger row per call, checked before anybody is asked.

A fresh call that nothing stands before is inserted as started: its intent and its start are one
row, written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import IntegrityError

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import HandoffTaken, InvalidArguments, ToolError, UnknownTool
from agentruntime.graph.json_values import NotJson
from agentruntime.graph.masking import mask
from agentruntime.graph.messages import ToolCall
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import gate, ledger
from agentruntime.lifecycle.outcomes import as_error
from agentruntime.lifecycle.record import Pen
from agentruntime.models import CallStatus, DatabaseTime, Lease, Thread, ToolExecution
from agentruntime.models.intent_statement import Inserted, write_intents
from agentruntime.models.step_statement import is_supported
from agentruntime.models.transactions import in_one_statement
from agentruntime.signals import committed


def draft_intent(
    call: ToolCall, calls: Sequence[ToolCall], tools: Mapping[str, Tool], **place: Any
) -> ToolExecution:
    """Return an unsaved row for a call: pending, to be asked about, or failed where it is invalid.

    `place` are the columns that say where it belongs.
    """
    row = ToolExecution(
        tool_call_id=call.id,
        tool=call.name[:200],
        arguments=call.arguments if isinstance(call.arguments, dict) else {},
        **place,
    )
    try:
        tool = tools.get(call.name)
        if tool is None:
            raise UnknownTool(tool=call.name, known=", ".join(tools) or "none")
        row.effect, row.tool_fingerprint = tool.effect, tool.fingerprint
        if call.extra.get("cut"):
            raise InvalidArguments(
                tool=call.name, reason="the answer was cut off in the middle of the call"
            )
        if tool.handoff and (first := _first_handoff(calls, tools)).id != call.id:
            raise HandoffTaken(tool=first.name)
        values, row.arguments = tool.read_arguments(call.arguments)
        _check_amount(tool, values)
        if gate.needs_approval(tool, values):
            row.status, row.is_gated = CallStatus.INTERRUPTED, True
    except ToolError as error:
        row.status, row.error = CallStatus.FAILED, as_error(error)
    return row


def _check_amount(tool: Tool, values: Mapping[str, Any]) -> None:
    """Raise `InvalidArguments` for an amount that nobody could be shown."""
    name = tool.approval.amount if tool.approval else ""
    if name and values.get(name) is not None:
        try:
            gate.read_amount(name, values[name])
        except NotJson as error:
            raise InvalidArguments(tool=tool.name, reason=str(error)) from None


def _first_handoff(calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> ToolCall:
    known = {name for name, tool in tools.items() if tool.handoff}
    return next(call for call in calls if call.name in known)


def insert_intents(
    pen: Pen, lease: Lease, rows: Sequence[ToolExecution], start: bool
) -> list[ToolExecution]:
    """Insert the rows, and tell of those that failed or, with `start`, have started.

    Returns the started ones.
    """
    started = [row for row in rows if start and row.status == CallStatus.PENDING]
    for row in rows:
        row.pk = None
        row.finished_at = DatabaseTime() if row.is_settled else None
    for row in started:
        _begin(row, lease)
        row.started_at = row.first_started_at = DatabaseTime()
    ToolExecution.objects.bulk_create(rows)
    for kind, data in _news_of(rows):
        pen.tell(kind, **data)
    return started


def begin_at_once(lease: Lease, rows: Sequence[ToolExecution]) -> bool:
    """Insert rows that nobody has written yet and that nothing stands before, as started, in one
    statement of their own.

    Says whether it was taken. It is not on other databases, if a call has to wait for a person, if
    the lease is gone or a stop was asked for: then nothing was written.
    """
    plain = {CallStatus.PENDING, CallStatus.FAILED}
    if not is_supported() or not all(row.status in plain for row in rows):
        return False
    to_start = [row for row in rows if row.status == CallStatus.PENDING]
    for row in to_start:
        _begin(row, lease)
    secret = runtime_settings().SECRET_FIELDS
    events = [{"type": kind, "data": mask(data, secret)} for kind, data in _news_of(rows)]
    try:
        inserted = in_one_statement(lambda: write_intents(lease, rows, events))
    except IntegrityError:  # they are there: a try before had landed, only its answer was lost
        inserted = _there_already(lease, rows)
    if inserted is None:
        for row in to_start:
            row.status, row.attempts, row.fencing_token = CallStatus.PENDING, 0, 0
        return False
    for row in rows:
        row.pk, row._state.adding = inserted.ids[row.call_key], False
    committed.send(
        sender=None,
        thread_id=lease.thread_id,
        run_id=lease.run_id,
        seq=inserted.event_count,
        types=[one["type"] for one in events],
    )
    return True


def _there_already(lease: Lease, rows: Sequence[ToolExecution]) -> Inserted | None:
    there = ledger.rows_by_key(lease.thread_id, [row.call_key for row in rows])
    if len(there) < len(rows):
        return None
    event_count = Thread.objects.values_list("event_count", flat=True).get(pk=lease.thread_id)
    return Inserted({key: row.pk for key, row in there.items()}, event_count)


def _begin(row: ToolExecution, lease: Lease) -> None:
    row.status, row.attempts = CallStatus.RUNNING, 1
    row.fencing_token = lease.fencing_token


def _news_of(rows: Sequence[ToolExecution]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in rows:
        if row.status == CallStatus.FAILED:
            yield "tool.failed", ledger.news_of(row)
        elif row.status == CallStatus.RUNNING:
            yield "tool.started", ledger.news_of(row)
