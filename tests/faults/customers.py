"""Agents whose tools deal with the bank, one per effect. Their models decide from the messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentruntime.graph import (
    NOT_DONE,
    ApprovalRule,
    Message,
    ToolCall,
    create_agent,
    interrupt,
    register,
    tool,
)
from agentruntime.graph.registry import unregister
from tests.faults import bank

EFFECTS = ("repeatable", "reconciled", "once", "transactional", "gated")


def model(messages: Sequence[Message], tools: Any) -> Message:
    """Two turns: a look and a payment side by side, then one more payment, then an answer."""
    since = max(n for n, one in enumerate(messages) if one.role == "user")
    results = [one for one in messages[since:] if one.role == "tool"]
    if not results:
        calls = [
            ToolCall(id="call_1", name="balance", arguments={}),
            ToolCall(id="call_2", name="pay", arguments={"amount": 5}),
        ]
        return Message.assistant("", tool_calls=calls)
    if len(results) == 2:
        calls = [ToolCall(id="call_1", name="pay", arguments={"amount": 7})]
        return Message.assistant("", tool_calls=calls)
    return Message.assistant("paid: " + " ".join(one.content for one in results))


@tool
def balance() -> int:
    """What is there."""
    return 100


def pay(amount: int, idempotency_key: str) -> str:
    """Pay."""
    return bank.request(idempotency_key, "pay", amount)["receipt"]


def pay_plainly(amount: int, idempotency_key: str) -> str:
    """Pay at a bank that knows no keys."""
    return bank.request(idempotency_key, "pay", amount, mode="plain")["receipt"]


def pay_by_row(amount: int, idempotency_key: str, ctx: Any) -> str:
    """Pay by writing a row, in the transaction of the ledger."""
    from django.contrib.auth.models import Group

    from agentruntime.crash import crash_point

    crash_point("P8")
    Group.objects.create(name=idempotency_key[-140:])
    crash_point("P9")
    return "written"


def ask_the_bank(arguments: dict[str, Any], idempotency_key: str) -> Any:
    known = bank.was_carried_out(idempotency_key)
    return known["receipt"] if known else NOT_DONE


def pay_after_asking(amount: int, idempotency_key: str) -> str:
    """Pay after a question of the body."""
    if interrupt({"pay": amount}) != "yes":
        return "not paid"
    return bank.request(idempotency_key, "pay", amount)["receipt"]


TOOLS = {
    "repeatable": tool(name="pay")(pay),
    "reconciled": tool(name="pay", effect="once", reconcile=ask_the_bank)(pay_plainly),
    "once": tool(name="pay", effect="once")(pay_plainly),
    "transactional": tool(name="pay", effect="transactional")(pay_by_row),
    "gated": tool(name="pay", effect="once", approval=ApprovalRule(title="Pay {amount}"))(
        pay_plainly
    ),
    "asking": tool(name="pay")(pay_after_asking),
}


def register_customers() -> None:
    """Make one agent per effect known, by the name of the effect."""
    for effect, pay_tool in TOOLS.items():
        unregister(effect)
        register(effect, create_agent(model=model, tools=[balance, pay_tool]))
