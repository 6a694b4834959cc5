"""`desk`: two agents in one conversation. The reception answers what it can look up, and hands over
to the cashier what is about money. Between them a person approves, as with `support`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentruntime.demo.scripted import read_wish, support_model
from agentruntime.demo.tools import lookup_order, refund, send_receipt
from agentruntime.graph import Message, StateGraph, Tool, ToolCall, create_agent, handoff, team

CASHIER = "to_cashier"
RECEPTION = "You are the reception of a small shop. Look orders up; hand over what is about money."
COUNTER = "You are the cashier of a small shop. Look an order up before you pay anything back."


def desk(model: str = "") -> StateGraph:
    """Return the two as one graph; without a provider's model they are scripted."""
    reception = create_agent(
        model=model or reception_model,
        tools=[lookup_order, handoff("cashier", "Refunds and receipts.", name=CASHIER)],
        instructions=RECEPTION,
    )
    cashier = create_agent(
        model=model or cashier_model,
        tools=[lookup_order, refund, send_receipt],
        instructions=COUNTER,
    )
    return team(reception=reception, cashier=cashier)


def reception_model(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand over what is about money, and answer the rest."""
    wish = read_wish(messages)
    if wish.orders and wish.kind in ("refund", "receipt"):
        call = ToolCall(id="call_over", name=CASHIER)
        return Message.assistant("My colleague at the till will help you.", tool_calls=[call])
    return support_model(messages, tools)


def cashier_model(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Do what the support desk does, from what was said since the handover."""
    mine, before = [], ""
    for message in messages:
        handed = any(call.name == CASHIER for call in message.tool_calls)
        if not handed and before != CASHIER:
            mine.append(message)
        before = CASHIER if handed else ""
    return support_model(mine, tools)
