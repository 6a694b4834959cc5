"""The question before a call: who must say yes to exactly this, and whether that yes still covers
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from agentruntime.exceptions import InvalidArguments
from agentruntime.graph import get_graph
from agentruntime.graph.json_values import NotJson, digest
from agentruntime.graph.places import tool_at
from agentruntime.graph.tools import ApprovalRule, Tool
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.policy import with_policy
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Question
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
)

MAX_AMOUNT_DIGITS = 60
SAME_NO = " The same call was declined before, so nobody was asked again."


@dataclass(frozen=True)
class Standing:
    """Where a gated call stands: to be asked, waiting, allowed, or refused with an outcome."""

    question: Question | None = None
    allowed: Interrupt | None = None
    refused: Outcome | None = None


def call_digest(row: ToolExecution, arguments: dict[str, Any], expires_at: str | None) -> str:
    """The digest of exactly this call: what is shown, signed and run."""
    return digest(
        {
            "tool": row.tool,
            "schema": row.tool_fingerprint,
            "arguments": arguments,
            "thread": str(row.thread_id),
            "call_key": row.call_key,
            "expires_at": expires_at,
        }
    )


def standing_of(
    progress: Progress, row: ToolExecution, tool: Tool, asked: list[Interrupt]
) -> Standing:
    """Say where a gated call stands, given the approvals asked for it so far, oldest first."""
    if not asked and (no := _declined_in_this_run(row)):
        return Standing(refused=no)
    live = [one for one in asked if one.status != InterruptStatus.CANCELLED]
    if not live:
        return _superseded(progress, row, tool, asked)
    last = live[-1]
    covers = last.payload["digest"] == call_digest(row, row.arguments, last.payload["expires_at"])
    if last.status == InterruptStatus.EXPIRED:
        return Standing(refused=expired(row))
    if not covers or row.tool_fingerprint != tool.fingerprint:
        return _superseded(progress, row, tool, asked)
    if last.status == InterruptStatus.OPEN:
        return Standing(question=same_question(last))
    return _answered(progress, row, tool, asked, last)


def _superseded(
    progress: Progress, row: ToolExecution, tool: Tool, asked: list[Interrupt]
) -> Standing:
    row.tool_fingerprint = tool.fingerprint
    row.save_fields(tool_fingerprint=tool.fingerprint)
    try:
        return Standing(question=approval_question(progress, row, tool, len(asked)))
    except (InvalidArguments, NotJson) as error:  # they do not fit the tool as it is today
        told = {"code": InvalidArguments.code, "detail": readable(str(error))}
        return Standing(refused=Outcome(CallStatus.FAILED, error=told))


def _answered(
    progress: Progress, row: ToolExecution, tool: Tool, asked: list[Interrupt], last: Interrupt
) -> Standing:
    answer = last.answer
    if answer["verdict"] != "approve":
        return Standing(refused=declined(answer))
    edited = answer.get("arguments")
    runs = row.arguments if edited is None else edited
    if answer["digest"] != call_digest(row, runs, last.payload["expires_at"]):
        return _superseded(progress, row, tool, asked)
    if edited is not None and edited != row.arguments:
        row.requested_arguments, row.arguments = row.arguments, edited
    return Standing(allowed=last)


def approval_question(
    progress: Progress, row: ToolExecution, tool: Tool, occurrence: int
) -> Question:
    """The approval to ask for: the call as it will run, and a snapshot of the rule."""
    rule = tool.approval or ApprovalRule()
    values = tool.load_arguments(row.arguments)
    expires_at = _expiry(rule.expires_in) if rule.on_expiry == "decline" else None
    due_at = _expiry(rule.expires_in) if rule.on_expiry == "wait" else None
    shown_expiry = expires_at.isoformat() if expires_at else None
    title = readable(_title(rule, tool, row.arguments), 300)
    if tool.must_ask:
        title = f"{title} ({tool.must_ask})"
    payload = {
        "tool": row.tool,
        "arguments": row.arguments,
        "digest": call_digest(row, row.arguments, shown_expiry),
        "call_key": row.call_key,
        "title": title,
        "graph": progress.run.graph,
        "node": row.node,
        "expires_at": shown_expiry,
        "due_at": due_at.isoformat() if due_at else None,
        "rule": _snapshot(rule, values),
    }
    return Question(
        scope=f"{row.call_key}:approval",
        payload=payload,
        occurrence=occurrence,
        kind=InterruptKind.APPROVAL,
        message=title,
        tool_execution_id=row.pk,
        expires_at=expires_at,
    )


def same_question(interrupt: Interrupt) -> Question:
    """Return the question that this interrupt asks already."""
    return Question(
        scope=interrupt.scope,
        payload=interrupt.payload,
        occurrence=interrupt.occurrence,
        kind=interrupt.kind,
        tool_execution_id=interrupt.tool_execution_id,
        kept=interrupt.pk,
    )


def _expiry(after: timedelta | None) -> datetime | None:
    if after is None:
        return None
    moment: datetime = ToolExecution.objects.annotate(
        now=DatabaseTime(after.total_seconds())
    ).values_list("now", flat=True)[:1][0]
    return moment.replace(microsecond=0)


def _title(rule: ApprovalRule, tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        return rule.title.format_map(arguments) if rule.title else f"Run {tool.name}"
    except Exception:  # a title that cannot be filled is no reason to ask nobody
        return f"Run {tool.name}"


def _snapshot(rule: ApprovalRule, values: dict[str, Any]) -> dict[str, Any]:
    amount = values.get(rule.amount) if rule.amount else None
    return {
        "permission": rule.permission,
        "group": rule.group,
        "amount": None if amount is None else str(read_amount(rule.amount, amount)),
        "amount_argument": rule.amount,
        "currency": rule.currency,
        "target": str(values.get(rule.target, "")) if rule.target else "",
        "target_argument": rule.target,
        "editable": list(rule.editable),
        "approvers": rule.approvers,
        "on_expiry": rule.on_expiry,
        "remind_after": rule.remind_after.total_seconds() if rule.remind_after else None,
        "escalate_after": rule.escalate_after.total_seconds() if rule.escalate_after else None,
        "escalate_to": rule.escalate_to,
    }


def read_amount(name: str, value: Any) -> Decimal:
    """Return an amount that people can be shown; raises `NotJson` for what is none."""
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        raise NotJson(name, "it is to be an amount, and is no number") from None
    if not amount.is_finite() or abs(amount.adjusted()) > MAX_AMOUNT_DIGITS:
        raise NotJson(name, "it is to be an amount, and is no amount of money")
    return amount


def last_yes(asked: list[Interrupt]) -> Interrupt | None:
    """Return the approval under which a call was started before."""
    given = [
        one
        for one in asked
        if one.kind == InterruptKind.APPROVAL and (one.answer or {}).get("verdict") == "approve"
    ]
    return given[-1] if given else None


def needs_approval(tool: Tool, values: dict[str, Any]) -> bool:
    """Say whether a call with these typed arguments needs a person. A rule that fails asks one."""
    if tool.must_ask:
        return True
    if tool.approval is None:
        return False
    if tool.approval.when is None:
        return True
    try:
        return bool(tool.approval.when(dict(values)))
    except Exception:
        return True


def declined(answer: dict[str, Any]) -> Outcome:
    """The outcome of a call that a person declined."""
    by, reason = answer.get("by") or "a person", (answer.get("reason") or "").strip()
    told = f"declined by {by}: {reason}" if reason else f"declined by {by}, without a reason"
    return Outcome(
        CallStatus.DECLINED,
        error={"code": "CALL_DECLINED_001", "detail": f"{told}. Nothing was done."},
    )


def _declined_in_this_run(row: ToolExecution) -> Outcome | None:
    """The no that a person gave to the same call before, in this run: who said it is not worn down
    by being asked again. A later message of the user begins another run.
    """
    before = ToolExecution.objects.filter(
        thread_id=row.thread_id,
        run_id=row.run_id,
        tool=row.tool,
        status=CallStatus.DECLINED,
        pk__lt=row.pk,
    )
    for one in before.order_by("-pk"):
        error = one.error or {}
        if one.arguments == row.arguments and error.get("code") == "CALL_DECLINED_001":
            told = str(error["detail"]).removesuffix(SAME_NO)
            return Outcome(CallStatus.DECLINED, error={**error, "detail": f"{told}{SAME_NO}"})
    return None


def expired(row: ToolExecution) -> Outcome:
    """The outcome of a call that nobody answered for in time."""
    detail = (
        "the approval expired, nobody answered in time (this is no refusal). Nothing was done: "
        "not executed."
    )
    return Outcome(CallStatus.CANCELLED, error={"code": "CALL_EXPIRED_001", "detail": detail})


def refused(why: str, is_first: bool = True) -> Outcome:
    """The outcome of a call that was approved, and refused when it was about to start (again)."""
    done = "Nothing was done." if is_first else "Whether the attempt before took effect is unknown."
    detail = (
        f"the call was approved, but refused right before it started: {readable(why, 500)}. {done}"
    )
    status = CallStatus.DECLINED if is_first else CallStatus.FAILED
    return Outcome(status, error={"code": "CALL_REFUSED_001", "detail": detail})


def check_edit(interrupt: Interrupt, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return edited arguments as they would be stored, and the digest of the call with them.

    Raises `InvalidArguments` if they do not fit the tool's schema. Which fields may be edited is
    the rule's business, not checked here.
    """
    row = interrupt.tool_execution
    assert row is not None
    tool = tool_at(get_graph(interrupt.run.graph), row.node, row.tool)
    if tool is None:
        raise InvalidArguments(tool=row.tool, reason="the tool is gone")
    _, stored = with_policy(tool).read_arguments(arguments)
    return stored, call_digest(row, stored, interrupt.payload["expires_at"])
