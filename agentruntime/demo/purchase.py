"""Two scripted models for `crash_demo`: a purchase with a question, and one with a slow printer."""

from __future__ import annotations

from collections.abc import Sequence

from agentruntime.demo.scripted import calls_of_turn
from agentruntime.graph import Message, Tool, ToolCall


def purchase_model(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Ask for the charge and the confirmation in one turn; then tell how both went."""
    done = calls_of_turn(messages)
    if done:
        return Message.assistant("\n".join(one.content for one in done))
    return Message.assistant(
        tool_calls=[
            ToolCall(
                id="call_charge",
                name="charge_card",
                arguments={"order_id": "2001", "amount": "49.00"},
            ),
            ToolCall(
                id="call_confirm", name="confirm_shipping", arguments={"address": "1 Main St"}
            ),
        ]
    )


def fulfil_model(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Ask for three calls in one turn, the last of them slow; then tell how they went."""
    done = calls_of_turn(messages)
    if done:
        return Message.assistant("\n".join(one.content for one in done))
    return Message.assistant(
        tool_calls=[
            ToolCall(
                id="call_charge",
                name="charge_card",
                arguments={"order_id": "2002", "amount": "49.00"},
            ),
            ToolCall(id="call_stock", name="reserve_stock", arguments={"order_id": "2002"}),
            ToolCall(
                id="call_label",
                name="print_label",
                arguments={"order_id": "2002", "seconds": 3.0},
            ),
        ]
    )
