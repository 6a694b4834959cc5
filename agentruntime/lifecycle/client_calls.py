"""Calls that the client runs: handed over as an interrupt, whose answer is the call's result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import ClientOverdue
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.ledger import database_now
from agentruntime.lifecycle.outcomes import Outcome, as_error
from agentruntime.lifecycle.questions import Question
from agentruntime.models import (
    CallStatus,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
)
from agentruntime.schemas import check_schema

OUTSIDE = {"kind": "client"}


def is_with_client(row: ToolExecution) -> bool:
    """Say whether a started call is the client's to run."""
    return bool(row.outside == OUTSIDE)


def standing_of(
    row: ToolExecution, tool: Tool, asked: list[Interrupt]
) -> Question | Interrupt | Outcome:
    """Say where a call stands that the client runs: to be handed over, waiting, or ended."""
    handed = [
        one
        for one in asked
        if one.kind == InterruptKind.CLIENT and one.status != InterruptStatus.CANCELLED
    ]
    if not handed:
        return _question(row, tool)
    last = handed[-1]
    if last.status == InterruptStatus.OPEN:
        return last
    if last.status == InterruptStatus.ANSWERED:
        return _outcome(last)
    error = as_error(ClientOverdue(tool=row.tool, seconds=tool.timeout or 0))
    return Outcome(CallStatus.FAILED, error=error)


def _question(row: ToolExecution, tool: Tool) -> Question:
    limit = tool.timeout if tool.timeout and tool.timeout > 0 else None
    return Question(
        scope=scope_of(row),
        payload={"tool": row.tool, "arguments": row.arguments, "call_key": row.call_key},
        kind=InterruptKind.CLIENT,
        message=f"{row.tool} is to be run by the client",
        response_schema=tool.result_schema,
        tool_execution_id=row.pk,
        expires_at=None if limit is None else database_now() + timedelta(seconds=limit),
    )


def scope_of(row: ToolExecution) -> str:
    """Return the scope in which a call is handed to the client."""
    return f"{row.call_key}:client"


def _outcome(handed: Interrupt) -> Outcome:
    failure = told_failure(handed.answer, handed.response_schema)
    if failure is None:
        return Outcome(CallStatus.SUCCEEDED, result=handed.answer)
    detail = f"the client said: {readable(failure, 1000)}"
    return Outcome(CallStatus.FAILED, error={"code": "TOOL_FAILED_001", "detail": detail})


def told_failure(value: Any, schema: Any) -> str | None:
    """Return what went wrong, if `value` is {"error": text} and no result of this schema."""
    if not isinstance(value, dict) or set(value) != {"error"}:
        return None
    if not isinstance(value["error"], str):
        return None
    if schema is not None:
        try:
            check_schema(value, schema)
        except NotJson:
            return value["error"]
        return None
    return value["error"]


def check_result(value: Any, schema: Any) -> None:
    """Raise `NotJson` for what is no result of such a call."""
    check_json(value, path="value", max_bytes=runtime_settings().MAX_RESULT_BYTES)
    if schema is not None and told_failure(value, schema) is None:
        check_schema(value, schema)
