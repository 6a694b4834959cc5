"""Keeping a conversation valid: what each call came to, in words, and no call without a result."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.graph.masking import mask
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.graph.messages import ToolCall, open_calls
from agentruntime.models import CallKind, CallStatus, DatabaseTime, Message, ToolExecution
from agentruntime.signals import call_settled

WINDOWS = (8, 200, None)
"""How many of the newest messages are searched for a thread's last turn: nearly always the first
will do."""


def call_key(message_id: str, tool_call_id: str) -> str:
    """The key of a call, unique within its thread and the same at every replay."""
    return f"{message_id}:{tool_call_id}"


def result_message(row: ToolExecution) -> MessageValue:
    """Return what the model is told of a settled call, always the same for the same row."""
    ident = str(uuid.uuid5(row.thread_id, f"{row.call_key}:result"))
    return MessageValue.tool(result_text(row), tool_call_id=row.tool_call_id, id=ident)


def result_text(row: ToolExecution) -> str:
    """Return what came of a call in words for the model."""
    if row.error is not None:
        return f"Error: {row.error['detail']}"
    text = row.result if isinstance(row.result, str) else json.dumps(row.result, ensure_ascii=False)
    if row.requested_arguments is not None:
        shown = mask(row.arguments, runtime_settings().SECRET_FIELDS)
        ran = json.dumps(shown, ensure_ascii=False)
        text = f"{text}\n(A person changed the arguments; what ran was: {ran})"
    return text


def load_messages(
    thread_id: uuid.UUID, after: int = 0, up_to: int | None = None
) -> list[MessageValue]:
    """Return the messages of a thread with an ordinal above `after`, up to `up_to`, in order."""
    rows = Message.objects.filter(thread_id=thread_id, ordinal__gt=after).order_by("ordinal")
    if up_to is not None:
        rows = rows.filter(ordinal__lte=up_to)
    return [Message.value_of(*columns) for columns in rows.values_list(*Message.VALUE_COLUMNS)]


def last_turn(thread_id: uuid.UUID) -> list[MessageValue]:
    """Return the last assistant message of a thread and what follows it."""
    newest_first = Message.objects.filter(thread_id=thread_id).order_by("-ordinal")
    rows: list[Message] = []
    for size in WINDOWS:
        rows = list(newest_first[:size])
        last = next((n for n, row in enumerate(rows) if row.role == "assistant"), None)
        if last is not None:
            rows = rows[: last + 1]
            break
        if size is None or len(rows) < size:
            break
    return [row.to_value() for row in reversed(rows)]


def close_open_calls(
    thread_id: uuid.UUID, messages: Sequence[MessageValue], why: str
) -> list[MessageValue]:
    """End every call of the last turn that has no result; return the results to append, in order.

    What had finished keeps its real result; what had been started and not recorded is said to be
    unknown; the rest is cancelled, `why` says for which reason. The caller holds the run's lock.
    """
    message, calls = open_calls(messages)
    if message is None or not calls:
        return []
    keys = {call.id: call_key(message.id, call.id) for call in calls}
    rows = {
        row.call_key: row
        for row in ToolExecution.objects.filter(thread_id=thread_id, call_key__in=keys.values())
    }
    return [_closed(rows.get(keys[call.id]), call, why) for call in calls]


def close_calls_within(run_id: uuid.UUID, why: str) -> None:
    """End the calls of a run that nothing waits for any more, and that are in no history: those of
    branches and of agents that were asked by a call. The caller holds the run's lock.
    """
    waiting = (CallStatus.PENDING, CallStatus.INTERRUPTED)
    for row in ToolExecution.objects.filter(run_id=run_id, kind=CallKind.CALL, status__in=waiting):
        _cancel(row, why)


def _closed(row: ToolExecution | None, call: ToolCall, why: str) -> MessageValue:
    if row is None:
        return MessageValue.tool(f"Error: not run: {why}", tool_call_id=call.id)
    if not row.is_settled:
        _cancel(row, why)
    return result_message(row)


def _cancel(row: ToolExecution, why: str) -> None:
    at_work = row.status in (CallStatus.RUNNING, CallStatus.UNKNOWN)
    is_undone = row.effect == "transactional"  # rolled back
    if row.outside is not None or (at_work and not is_undone):
        changes: dict[str, Any] = {
            "status": CallStatus.UNKNOWN,
            "error": {
                "code": "CALL_UNKNOWN_001",
                "detail": f"{why}; the call had been started and its outcome is not known",
            },
        }
    else:
        changes = {
            "status": CallStatus.CANCELLED,
            "error": {"code": "CALL_CANCELLED_001", "detail": f"not run: {why}"},
            "finished_at": DatabaseTime(),
        }
    row.save_fields(**changes)
    call_settled.send(sender=ToolExecution, execution=row)
