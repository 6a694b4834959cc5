"""Everything that the decision page shows of an approval: read here, printed by the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Permission

from agentruntime.exceptions import UnknownGraph
from agentruntime.graph import get_graph
from agentruntime.models import Interrupt, Message, Run, ToolExecution
from approvals.masking import is_secret, mask, mask_words
from approvals.models import Approval, Decision
from approvals.permissions import (
    Rights,
    amount_of,
    nobody_may,
    policy_for,
    visible_to,
    voices_missing,
    why_not,
)
from approvals.standing import agreed_so_far
from approvals.timeline import ROW, Bar, timeline_of
from approvals.visible import is_suspicious

MESSAGES_SHOWN = 40
EARLIER_SHOWN = 10


@dataclass(frozen=True)
class Field:
    """One argument as it is shown."""

    name: str
    value: Any
    asked: Any
    editable: bool
    in_schema: bool
    secret: bool
    suspicious: bool

    @property
    def is_changed(self) -> bool:
        return bool(self.value != self.asked)

    @property
    def is_long(self) -> bool:
        return isinstance(self.value, str) and (len(self.value) > 80 or "\n" in self.value)


@dataclass(frozen=True)
class Line:
    """One message of the conversation."""

    role: str
    content: str
    calls: Sequence[Mapping[str, Any]]
    at: datetime
    asks: bool


@dataclass
class Story:
    """The decision page of one approval for one person."""

    approval: Approval
    fields: list[Field]
    money: str
    asked_money: str
    why_not: str
    nobody: str
    missing: int
    decisions: list[Decision]
    said: str = ""
    conversation: list[Line] = field(default_factory=list)
    left_out: int = 0
    bars: list[Bar] = field(default_factory=list)
    on_thread: list[Approval] = field(default_factory=list)
    beside: list[Approval] = field(default_factory=list)
    on_target: list[Approval] = field(default_factory=list)
    run: Run | None = None
    who: str = ""

    result: Any = None

    @property
    def bars_height(self) -> int:
        return len(self.bars) * ROW

    @property
    def may_decide(self) -> bool:
        return self.approval.is_pending and not self.why_not

    @property
    def suspicious(self) -> bool:
        return any(one.suspicious for one in self.fields) or is_suspicious(self.approval.title)


def tell_story(approval: Approval, rights: Rights | None) -> Story:
    """Read what one page shows. A dozen queries, whatever the length of the thread."""
    amount = amount_of(approval)
    rule = approval.rule
    story = Story(
        approval=approval,
        fields=fields_of(approval),
        money=str(rule.get("edited_amount") or rule.get("amount") or ""),
        asked_money=str(rule.get("amount") or ""),
        why_not=why_not(rights, approval, amount),
        nobody=nobody_may(approval),
        missing=voices_missing(agreed_so_far(approval), approval, amount),
        decisions=list(approval.decisions.order_by("number")),
        run=Run.objects.filter(pk=approval.run_id).first(),
        who=who_may(approval),
    )
    call = call_of(approval)
    story.result = mask(call.result) if call else None
    _add_conversation(story)
    _add_earlier(story, rights)
    if story.run is not None:
        story.bars = timeline_of(story.run, approval)
    return story


def fields_of(approval: Approval) -> list[Field]:
    """Return the arguments, money and target first, what the schema does not know last."""
    known = _schema_fields(approval)
    rule = approval.rule
    first = [rule.get("amount_argument"), rule.get("target_argument")]
    names = [name for name in first if name in approval.arguments]
    names += [name for name in known or () if name in approval.arguments and name not in names]
    names += [name for name in approval.arguments if name not in names]
    return [
        Field(
            name=name,
            value=approval.arguments[name],
            asked=approval.asked_arguments.get(name),
            editable=name in approval.editable and not is_secret(name),
            in_schema=known is None or name in known,
            secret=is_secret(name),
            suspicious=is_suspicious(_text(approval.arguments[name])),
        )
        for name in names
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _schema_fields(approval: Approval) -> list[str] | None:
    """Return the parameters of the tool as the code has them now, or None where it is gone."""
    try:
        tool = get_graph(approval.graph).tools.get(approval.tool)
    except UnknownGraph:
        return None
    return list(tool.parameters.model_fields) if tool else None


def who_may(approval: Approval) -> str:
    """Return in words who may decide."""
    policy = policy_for(approval.tool, approval.rule)
    parts = []
    if policy.permission:
        parts.append(f"who holds {_named(policy.permission)}")
    if policy.group:
        parts.append(f"members of {policy.group}")
    if approval.escalated_to:
        parts.append(f"members of {approval.escalated_to} (escalated)")
    for band in policy.bands or ():
        whom = band.group or _named(band.permission) or "anyone of them"
        limit = (
            "any amount" if band.up_to is None else f"up to {band.up_to:f} {band.currency}".strip()
        )
        count = f", {band.approvers} of them" if band.approvers > 1 else ""
        parts.append(f"{whom}: {limit}{count}")
    if policy.approvers > 1:
        parts.append(f"{policy.approvers} people must agree")
    return "; ".join(parts)


def _named(permission: str) -> str:
    """Return a permission in the words of its model, then as it is granted: “Can ...” (app.can)."""
    app, _, codename = permission.partition(".")
    found = Permission.objects.filter(content_type__app_label=app, codename=codename).first()
    return f"“{found.name}” ({permission})" if found else permission


def _add_conversation(story: Story) -> None:
    approval = story.approval
    rows = Message.objects.filter(thread_id=approval.thread_id)
    newest = list(rows.order_by("-ordinal")[:MESSAGES_SHOWN])
    wanted = approval.call_key.rpartition(":")[0]
    for row in reversed(newest):
        asks = bool(wanted) and approval.call_key.startswith(f"{row.pk}:")
        calls = [
            mask({"name": c.get("name"), "arguments": c.get("arguments")}) for c in row.tool_calls
        ]
        said = mask_words(row.content) if row.role == "tool" else row.content
        story.conversation.append(Line(row.role, said, calls, row.created_at, asks))
        if asks:
            story.said = row.content
    story.left_out = max(0, newest[0].ordinal - len(newest)) if newest else 0


def _add_earlier(story: Story, rights: Rights | None) -> None:
    approval = story.approval
    others = Approval.objects.exclude(pk=approval.pk).filter(visible_to(rights))
    others = others.prefetch_related("decisions").order_by("-created_at")
    for other in others.filter(thread_id=approval.thread_id)[:EARLIER_SHOWN]:
        (story.on_thread if _is_earlier(other, approval) else story.beside).append(other)
    if approval.target:
        same = others.filter(target=approval.target, tool=approval.tool)
        story.on_target = list(same.exclude(thread_id=approval.thread_id)[:EARLIER_SHOWN])


def _is_earlier(other: Approval, approval: Approval) -> bool:
    """Whether it was asked before and is closed; what still waits is beside this one."""
    return (
        not other.is_pending
        and other.created_at < approval.created_at
        and other.call_key.rpartition(":")[0] != approval.call_key.rpartition(":")[0]
    )


def call_of(approval: Approval) -> ToolExecution | None:
    """Return the ledger row of the call, while its thread exists."""
    return ToolExecution.objects.filter(pk=approval.tool_execution_id).first()


def question_of(approval: Approval) -> Interrupt | None:
    return Interrupt.objects.filter(pk=approval.interrupt_id).first()
