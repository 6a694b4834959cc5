"""The support desk's model without a provider: it decides from the messages it is given, only.

It keeps no counter and no memory of its own, so that a run which another process takes up goes on
as if nothing had happened; and what it tells the customer is read off the tool messages.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings

from agentruntime.demo.wording import told_of_order, told_of_receipt, told_of_refund
from agentruntime.graph import Message, Tool, ToolCall

NUMBER = re.compile(r"(?<![\d.,])\d{3,10}(?![.,]?\d|\s?(?:€|eur))", re.IGNORECASE)
AMOUNT = re.compile(r"(?:€\s?)?(\d{1,6}[.,]\d{2})\b|(\d{1,6})\s?(?:€|eur)", re.IGNORECASE)
WISHES = {
    "refund": re.compile(
        r"refund|money back|pa(?:y|id) back|reimburs|broken|damaged|cracked", re.I
    ),
    "receipt": re.compile(r"receipt|invoice|confirmation", re.I),
    "status": re.compile(r"where|status|track|when|arriv|deliver|order", re.I),
}
POINTS_BACK = re.compile(r"\b(?:it|that|this|them|those)\b", re.I)
MAY_BE_REFUNDED = ("delivered", "returned", "cancelled")

HELLO = (
    "Hello! I am the shop's support agent. I can look up an order, pay money back and send a "
    'receipt. Try: "Order 1042 arrived broken, please refund it".'
)
WHICH = "Gladly. Which order is it? I need its number, such as 1042."


@dataclass(frozen=True)
class Done:
    """One call of this turn and the tool message that answered it."""

    call: ToolCall
    content: str

    @property
    def found(self) -> dict[str, Any]:
        """What the tool returned; empty where it answered with words, such as an error.

        The runtime adds a line of words where a person changed the arguments.
        """
        try:
            value, _ = json.JSONDecoder().raw_decode(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def order_id(self) -> str:
        return str(self.call.arguments["order_id"])


@dataclass(frozen=True)
class Wish:
    """What the customer wants: a kind of `WISHES` or "", of which orders, how much."""

    kind: str
    orders: tuple[str, ...]
    amount: Decimal | None
    words: str


def support_model(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Return the next message: look orders up, then act on them, then tell how it went."""
    time.sleep(float(getattr(settings, "DEMO_MODEL_DELAY", 0.3)))
    wish, done = read_wish(messages), calls_of_turn(messages)
    if not wish.orders:
        return Message.assistant(WHICH if wish.kind in ("refund", "receipt") else HELLO)
    looked_up = [one for one in done if one.call.name == "lookup_order"]
    if not looked_up:
        return _ask("lookup_order", [{"order_id": order} for order in wish.orders], len(done))
    acted = [one for one in done if one.call.name != "lookup_order"]
    if not acted and (wanted := _actions(wish, looked_up)):
        return _ask({"receipt": "send_receipt"}.get(wish.kind, "refund"), wanted, len(done))
    return Message.assistant(_answer(wish, looked_up, acted))


def read_wish(messages: Sequence[Message]) -> Wish:
    """Return what the last user message wants, completed from the one before it."""
    said = [message.content for message in messages if message.role == "user"] or [""]
    words, before = said[-1], said[-2] if len(said) > 1 else ""
    kind, orders = _kind(words), _numbers(words)
    if kind and not orders and POINTS_BACK.search(words):
        orders = _numbers(before)
    if orders and not kind:  # "1042", after we asked which order
        kind = ("" if _numbers(before) else _kind(before)) or "status"
    amount = AMOUNT.search(words)
    return Wish(
        kind=kind,
        orders=orders[:5],
        amount=Decimal((amount[1] or amount[2]).replace(",", ".")) if amount else None,
        words=words,
    )


def _kind(words: str) -> str:
    return next((kind for kind, pattern in WISHES.items() if pattern.search(words)), "")


def _numbers(words: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(NUMBER.findall(words)))


def calls_of_turn(messages: Sequence[Message]) -> list[Done]:
    """Return the answered calls since the last user message, in order.

    A call's id is good only within its own message, so an answer is looked for right after it.
    """
    done: list[Done] = []
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "user":
            done, calls = [], {}
        elif message.role == "assistant":
            calls = {call.id: call for call in message.tool_calls}
        elif message.role == "tool" and message.tool_call_id in calls:
            done.append(Done(calls[message.tool_call_id], message.content))
    return done


def _ask(tool: str, wanted: list[dict[str, Any]], made: int) -> Message:
    """Ask for one call per arguments. The ids begin anew each turn, as some providers' do."""
    words = {
        "lookup_order": "Let me look that up.",
        "refund": "I will ask for the refund.",
        "send_receipt": "I will send the receipt.",
    }
    calls = [
        ToolCall(id=f"call_{made + place}", name=tool, arguments=arguments)
        for place, arguments in enumerate(wanted, start=1)
    ]
    return Message.assistant(words[tool], tool_calls=calls)


def _actions(wish: Wish, looked_up: list[Done]) -> list[dict[str, Any]]:
    """Return the arguments of the calls that the wish comes to, none where nothing can be done."""
    orders = [one.found for one in looked_up if one.found]
    if wish.kind == "receipt":
        return [{"order_id": order["order_id"]} for order in orders]
    if wish.kind != "refund":
        return []
    return [
        {"order_id": order["order_id"], "amount": str(amount), "reason": wish.words[:300]}
        for order in orders
        if order["status"] in MAY_BE_REFUNDED and (amount := _amount(wish, order))
    ]


def _amount(wish: Wish, order: dict[str, Any]) -> Decimal | None:
    """Return what to ask for: what was named, else what is left, else all; None: more than paid.

    An order that was paid back already is not refused here: a person sees it and decides.
    """
    paid, back = Decimal(order["amount"]), Decimal(order["refunded"])
    if wish.amount is not None:
        return wish.amount if 0 < wish.amount <= paid else None
    return paid - back if back < paid else paid


def _answer(wish: Wish, looked_up: list[Done], acted: list[Done]) -> str:
    actions = {one.order_id: one for one in acted}
    parts = []
    for one in looked_up:
        action = actions.get(one.order_id)
        if action is None:
            parts.append(told_of_order(one.order_id, one.found, one.content, wish.kind == "refund"))
        elif action.call.name == "send_receipt":
            parts.append(told_of_receipt(one.order_id, action.content))
        else:
            asked = Decimal(str(action.call.arguments["amount"]))
            parts.append(told_of_refund(one.found, asked, action.found, action.content))
    return "\n\n".join(parts)
