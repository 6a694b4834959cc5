"""Calls that were started and whose outcome nobody knows: what is known, asked and answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.lifecycle.ledger import news_of
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
    Unreadable,
)
from agentruntime.signals import counted, noticed


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
        "error": row.error["detail"] if isinstance(row.error, dict) else None,
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
    if isinstance(row.result, Unreadable) or not isinstance(row.state_update, dict):
        return False
    try:
        check_json(row.result, max_bytes=2 * runtime_settings().MAX_RESULT_BYTES)
        check_json(row.state_update, max_bytes=2 * runtime_settings().MAX_RESULT_BYTES)
    except NotJson:
        return False
    if row.error is None:
        return row.status == CallStatus.SUCCEEDED
    return isinstance(row.error, dict) and {"code", "detail"} <= set(row.error)


def reopen(pen: Pen, row: ToolExecution) -> None:
    """Make a settled row that cannot be read back one of unknown outcome again."""
    noticed.send(
        sender=None,
        level="error",
        event="a recorded outcome cannot be read back; the call counts as one of unknown outcome",
        facts={"run": row.run_id, "thread": row.thread_id, "tool": row.tool, "key": row.call_key},
    )
    counted.send(sender=None, name="tool.unknown", value=1, attributes={"tool": row.tool})
    row.save_fields(
        status=CallStatus.UNKNOWN,
        attempts=max(row.attempts, 1),
        result=None,
        state_update={},
        error={"code": "CALL_UNKNOWN_002", "detail": "its recorded outcome cannot be read back"},
        finished_at=None,
    )
    pen.tell("tool.unknown", **news_of(row))


def within_key_window(row: ToolExecution, ttl: timedelta | None) -> bool:
    """Say whether the provider still knows the key of a call by now, by the database's clock."""
    if ttl is None or row.first_started_at is None:
        return True
    started_after = DatabaseTime(-ttl.total_seconds())
    return ToolExecution.objects.filter(pk=row.pk, first_started_at__gte=started_after).exists()
