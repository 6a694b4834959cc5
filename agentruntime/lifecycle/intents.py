"""What is written before a call starts: one ledger row per call, checked before anybody is asked.

A fresh call that nothing stands before is inserted as started: its intent and its start are one
row, written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentruntime.exceptions import HandoffTaken, InvalidArguments, ToolError, UnknownTool
from agentruntime.graph.json_values import NotJson
from agentruntime.graph.messages import ToolCall
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import gate, ledger
from agentruntime.lifecycle.outcomes import as_error
from agentruntime.lifecycle.record import Pen
from agentruntime.models import CallStatus, DatabaseTime, Lease, ToolExecution


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
        row.status, row.attempts = CallStatus.RUNNING, 1
        row.fencing_token = lease.fencing_token
        row.started_at = row.first_started_at = DatabaseTime()
    ToolExecution.objects.bulk_create(rows)
    for row in rows:
        if row.status == CallStatus.FAILED:
            pen.tell("tool.failed", **ledger.news_of(row))
        elif row.status == CallStatus.RUNNING:
            pen.tell("tool.started", **ledger.news_of(row))
    return started
