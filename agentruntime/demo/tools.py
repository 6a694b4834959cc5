"""What the demo's agents can do. Each tool says what a repeat of it would mean."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from agentruntime.demo import shop
from agentruntime.graph import ApprovalRule, interrupt, tool

ASK_ABOVE = Decimal("20.00")

OrderId = Annotated[str, Field(max_length=20)]
Euros = Annotated[Decimal, Field(gt=0, max_digits=9, decimal_places=2)]


@tool
def lookup_order(order_id: OrderId) -> dict[str, Any]:
    """Look up an order: what was bought, what was paid, how far it has come, what was paid back.

    Args:
        order_id: the number of the order, such as 1042
    """
    order = shop.find_order(order_id)
    refunds = shop.gateway().moved("refund", order.id)
    return {
        "order_id": order.id,
        "item": order.item,
        "amount": str(order.amount),
        "currency": "EUR",
        "status": order.status,
        "due": order.due,
        "refunded": str(sum((Decimal(one["amount"]) for one in refunds), Decimal("0.00"))),
    }


# The gateway remembers keys, so a refund of unknown outcome is simply sent again with its key:
# no person has to find out what happened.
@tool(
    effect="repeatable",
    timeout=30,
    approval=ApprovalRule(
        title="Refund {amount} for order {order_id}",
        when=lambda arguments: arguments["amount"] > ASK_ABOVE,
        permission="approvals.decide_refund",
        amount="amount",
        currency="EUR",
        target="order_id",
        editable=("amount",),
        expires_in=timedelta(days=2),
    ),
)
def refund(order_id: OrderId, amount: Euros, reason: str, idempotency_key: str) -> dict[str, Any]:
    """Pay money back for an order. Above 20 euros a person is asked first.

    Args:
        order_id: the number of the order
        amount: how much to pay back, in euros
        reason: why, in the customer's words
    """
    paid = shop.gateway().refund(shop.find_order(order_id), amount, idempotency_key)
    return {"refund_id": paid["id"], "order_id": paid["order_id"], "amount": paid["amount"]}


@tool
def send_receipt(order_id: OrderId, idempotency_key: str) -> str:
    """Mail the customer a list of what was paid back for an order.

    Args:
        order_id: the number of the order
    """
    order = shop.find_order(order_id)
    refunds = shop.gateway().moved("refund", order.id)
    lines = [f"{one['amount']} EUR ({one['answer']['id']})" for one in refunds]
    text = f"Order {order.id}, {order.item}: " + (", ".join(lines) or "nothing was paid back")
    sent = shop.outbox().append_once(idempotency_key, order_id=order.id, text=text)
    return str(sent["text"])


@tool
def charge_card(order_id: OrderId, amount: Euros, idempotency_key: str) -> dict[str, Any]:
    """Charge the customer's card for a purchase.

    Args:
        order_id: the purchase
        amount: how much, in euros
    """
    return shop.gateway().charge(order_id, amount, idempotency_key)


@tool
def confirm_shipping(address: str, idempotency_key: str) -> str:
    """Ask the customer whether the address is right, and tell the warehouse to send the parcel.

    Args:
        address: where the parcel goes
    """
    answer = interrupt({"address": address}, message=f"Ship to {address}?", response_schema=bool)
    if not answer:
        return f"Not confirmed: nothing is sent to {address}."
    shop.warehouse().append_once(idempotency_key, what="sent", address=address)
    return f"Confirmed: the parcel goes to {address}."


@tool
def reserve_stock(order_id: OrderId, idempotency_key: str) -> str:
    """Set the goods of a purchase aside in the warehouse.

    Args:
        order_id: the purchase
    """
    shop.warehouse().append(what="reserved", order_id=order_id, key=idempotency_key)
    return f"The goods of purchase {order_id} are set aside."


@tool(timeout=60)
def print_label(order_id: OrderId, seconds: float, idempotency_key: str) -> str:
    """Print the parcel's label on the old printer downstairs, which takes its time.

    Args:
        order_id: the purchase
        seconds: how long the printer takes
    """
    shop.warehouse().append(what="label started", order_id=order_id, key=idempotency_key)
    time.sleep(seconds)
    shop.warehouse().append(what="label printed", order_id=order_id, key=idempotency_key)
    return f"The label of purchase {order_id} is printed."
