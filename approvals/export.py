"""The record for auditors: CSV that no spreadsheet runs, or JSON Lines; it leaves a trace."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType

from agentruntime.graph.json_values import canonical_json
from approvals.exceptions import NotAllowed
from approvals.models import Decision
from approvals.permissions import Rights

PERMISSION = "approvals.export_decisions"
COLUMNS = (
    "number", "at", "verdict", "by", "user_id", "door", "is_final", "approval_id", "tool", "title",
    "amount", "currency", "target", "requester", "status", "outcome", "reason", "digest",
    "shown_digest", "arguments", "asked_arguments", "rule", "rights", "seconds_shown", "hash",
    "previous_hash",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


def export_decisions(rights: Rights | None, form: str) -> Iterator[str]:
    """Return the lines of the record of one tenant, oldest first, and note who took it.

    The trace is written before the first line is given out. Raises `NotAllowed`.
    """
    if rights is None or not rights.is_active or PERMISSION not in rights.permissions:
        name = rights.username if rights else "Nobody"
        raise NotAllowed(user=name, reason=f"the permission {PERMISSION} is missing.")
    found = Decision.objects.filter(approval__tenant=rights.tenant).select_related("approval")
    leave_trace(rights.user_id, f"Exported {found.count()} decisions as {form}")
    rows = map(row_of, found.order_by("number").iterator(chunk_size=500))
    return _csv(rows) if form == "csv" else _json_lines(rows)


def leave_trace(user_id: Any, what: str) -> None:
    """Note in Django's history that somebody took or checked the record."""
    LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(Decision),
        object_id="",
        object_repr="The record of decisions",
        action_flag=CHANGE,
        change_message=what,
    )


def row_of(decision: Decision) -> dict[str, Any]:
    """Return one decision with what it was about."""
    approval = decision.approval
    found = {name: getattr(decision, name, None) for name in COLUMNS}
    return found | {
        "at": decision.at.isoformat(),
        "approval_id": str(decision.approval_id),
        "user_id": str(decision.user_id),
        "tool": approval.tool,
        "title": approval.title,
        "amount": approval.shown_amount,
        "currency": approval.currency,
        "target": approval.target,
        "requester": approval.requester_name,
        "status": approval.status,
        "outcome": approval.outcome,
        "asked_arguments": approval.asked_arguments,
    }


def _csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield _line(COLUMNS)
    for row in rows:
        yield _line([safe_cell(row[name]) for name in COLUMNS])


def _line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue()


def safe_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula; numbers stay numbers."""
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else value
    text = value if isinstance(value, str) else canonical_json(value)
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) else text


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False) + "\n"
