"""What a page tells of one tool call and of one question: plain facts for the templates."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import Permission

from agentruntime.conf import runtime_settings
from agentruntime.graph.masking import mask, mask_text
from agentruntime.models import (
    CallStatus,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
)

LONGEST = 4_000
WORKING = (CallStatus.PENDING, CallStatus.RUNNING)


def call_facts(
    call: dict[str, Any], execution: ToolExecution | None, result: str | None
) -> dict[str, Any]:
    """Return the facts of a call that a model asked for, of its ledger row and tool message."""
    status = CallStatus(execution.status) if execution else CallStatus.PENDING
    arguments = execution.arguments if execution else call.get("arguments", {})
    return {
        "tool": call["name"],
        "label": call["name"].replace("_", " ").replace("-", " ").capitalize(),
        "arguments": _argument_lines(arguments, execution),
        "status": status.value,
        "status_label": status.label,
        "is_working": status in WORKING,
        "attempts": execution.attempts if execution else 0,
        "seconds": _seconds(execution),
        "result": _shown_result(_result_so_far(execution) if result is None else result),
        "questions": [question_facts(row) for row in _in_order(execution)],
    }


def _in_order(execution: ToolExecution | None) -> list[Interrupt]:
    rows = list(execution.interrupts.all()) if execution else []
    return sorted(rows, key=lambda row: row.created_at)


def _argument_lines(arguments: Any, execution: ToolExecution | None) -> list[dict[str, str]]:
    """Return one line per argument; `asked` where a person changed what the model asked for."""
    if not isinstance(arguments, dict):
        return [
            {
                "name": "arguments",
                "value": shown(masked({"arguments": arguments})["arguments"]),
                "asked": "",
            }
        ]
    asked = (execution.requested_arguments if execution else None) or arguments
    before, after = masked(asked), masked(arguments)
    changed = {name for name in before if name in after and asked[name] != arguments[name]}
    return [
        {
            "name": name,
            "value": shown(value),
            "asked": shown(before[name]) if name in changed else "",
        }
        for name, value in after.items()
    ]


def masked(value: Any) -> Any:
    """Return a JSON value with what is secret in it hidden."""
    return mask(value, runtime_settings().SECRET_FIELDS)


def _seconds(execution: ToolExecution | None) -> float | None:
    if execution is None or execution.started_at is None or execution.finished_at is None:
        return None
    return round(max((execution.finished_at - execution.started_at).total_seconds(), 0.0), 1)


def _result_so_far(execution: ToolExecution | None) -> str | None:
    """Return what a call came to that is recorded while its siblings still work or wait."""
    if execution is None or not execution.is_settled:
        return None
    if execution.error is not None:
        return str(execution.error.get("detail", ""))
    return json.dumps(execution.result)


def _shown_result(result: str | None) -> str:
    if result is None:
        return ""
    try:
        value = json.loads(result)
    except ValueError:
        return cut(mask_text(result, runtime_settings().SECRET_FIELDS))
    return cut(json.dumps(masked(value), ensure_ascii=False, indent=2))


def shown(value: Any) -> str:
    """Return a JSON value as text: text as it is, the rest as JSON."""
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def cut(text: str) -> str:
    """Return `text`, its end replaced by how long it is where it is too long for a page."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} … ({len(text):,} characters in all)"


def question_facts(row: Interrupt) -> dict[str, Any]:
    """Return the facts of a question: what is asked, of whom, since when, and what came of it."""
    is_open = row.status == InterruptStatus.OPEN
    return {
        "id": row.id,
        "kind": row.kind,
        "message": row.message,
        "payload": _payload_lines(row) if row.kind == InterruptKind.QUESTION else [],
        "status": row.status,
        "since": row.created_at,
        "expires_at": row.expires_at if is_open else None,
        "whom": whom_it_waits_for(row) if is_open else "",
        "form": answer_form(row.response_schema),
        "answered_by": row.answered_by.get_username() if row.answered_by else "",
        "verdict": _verdict(row),
        "answer": shown(masked(row.answer))
        if row.kind == InterruptKind.QUESTION and not is_open
        else "",
    }


def _payload_lines(row: Interrupt) -> list[dict[str, str]]:
    payload = masked(row.payload)
    if isinstance(payload, dict):
        return [{"name": name, "value": shown(value)} for name, value in payload.items()]
    return [{"name": "", "value": shown(payload)}] if payload is not None else []


def _verdict(row: Interrupt) -> dict[str, str]:
    """Return what a person decided, as a verb in the past, and the reason; empty if nobody did."""
    if row.kind != InterruptKind.APPROVAL or not isinstance(row.answer, dict):
        return {}
    approved = row.answer.get("verdict") == "approve"
    edited = approved and row.answer.get("arguments") is not None
    done = "approved" if approved else "declined"
    return {
        "done": done,
        "words": "Changed and approved" if edited else done.capitalize(),
        "reason": str(row.answer.get("reason") or ""),
    }


def whom_it_waits_for(row: Interrupt) -> str:
    """Return in words who may answer an open question."""
    if row.kind == InterruptKind.QUESTION:
        return "you"
    if row.kind == InterruptKind.OUTCOME:
        return "an operator who finds out what happened"
    if row.kind == InterruptKind.CLIENT:
        return "the program that runs it"
    rule = row.payload.get("rule", {}) if isinstance(row.payload, dict) else {}
    if rule.get("permission"):
        return f"a person with the right “{permission_name(rule['permission'])}”"
    if rule.get("group"):
        return f"somebody of the group “{rule['group']}”"
    return "a person who may decide"


def permission_name(permission: str) -> str:
    """Return a permission in the words of its model, such as “Can decide refunds”."""
    app, _, codename = permission.partition(".")
    found = Permission.objects.filter(content_type__app_label=app, codename=codename).first()
    return found.name if found else permission


def answer_form(schema: Any) -> dict[str, Any]:
    """Return how a question can be answered on a page: with choices, or with written text or JSON.

    `choices` are (what the button says, the JSON it sends).
    """
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "boolean":
        return {"choices": [("Yes", "true"), ("No", "false")]}
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list) and schema["enum"]:
        return {"choices": [(shown(one), json.dumps(one)) for one in schema["enum"][:12]]}
    return {"choices": [], "is_json": kind in ("integer", "number", "object", "array")}
