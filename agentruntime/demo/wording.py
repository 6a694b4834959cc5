"""How the support desk says things: sentences from what the tools answered, never from hope."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def told_of_order(order_id: str, order: dict[str, Any], content: str, refund: bool) -> str:
    """Return how far an order has come and, where a `refund` was wished for, why there is none."""
    if not order:
        return _not_found(order_id, content)
    name = f"Order {order['order_id']} ({order['item']}, {order['amount']} EUR)"
    where = {
        "being packed": f"is being packed and should arrive {order['due']}",
        "on its way": f"is on its way and should arrive {order['due']}",
        "delivered": "was delivered",
        "returned": "came back to us",
        "cancelled": "was cancelled",
    }.get(order["status"], f"is {order['status']}")
    told = f"{name} {where}."
    if Decimal(order["refunded"]) > 0:
        told += f" {order['refunded']} EUR of it were paid back."
    if refund and order["status"] in ("being packed", "on its way"):
        told += " There is nothing to pay back yet; write again if it does not arrive."
    elif refund:
        told += f" I cannot pay back more than the {order['amount']} EUR that were paid."
    return told


def _not_found(order_id: str, content: str) -> str:
    if "no order" in content:
        return f"I find no order {order_id}. Is the number right?"
    return f"I could not look up order {order_id}. {content.removeprefix('Error: ')}"


def told_of_refund(
    order: dict[str, Any], asked: Decimal, paid: dict[str, Any], content: str
) -> str:
    """Return how a refund went: paid, paid with another amount, or why it was not."""
    name = f"order {order['order_id']} ({order['item']})"
    if "refund_id" not in paid:
        return _told_why_not(name, asked, content.removeprefix("Error: "))
    amount, number = Decimal(paid["amount"]), paid["refund_id"]
    if amount != asked:
        return (
            f"A refund of {amount:.2f} EUR for {name} was approved, instead of the "
            f"{asked:.2f} EUR that I asked for, and has been made. Its number is {number}."
        )
    return f"Your refund of {amount:.2f} EUR for {name} has been made. Its number is {number}."


def _told_why_not(name: str, asked: Decimal, error: str) -> str:
    # An error begins in the runtime's words; what follows may be a person's, and say anything.
    if error.startswith("declined by "):
        _, _, reason = error.removesuffix(" Nothing was done.").partition(": ")
        because = f" The reason that was given: “{reason.rstrip('.')}”." if reason else ""
        declined = f"The refund of {asked:.2f} EUR for {name} was declined."
        return f"{declined}{because} Nothing was refunded."
    if error.startswith("the approval expired"):
        return f"Nobody decided about the refund for {name} in time, so nothing was refunded."
    if "is not known" in error:
        return f"I do not know yet whether the refund for {name} was made: {error}"
    return f"The refund for {name} did not go through. {error}"


def told_of_receipt(order_id: str, content: str) -> str:
    """Return what the receipt says, or why there is none."""
    if content.startswith("Error: "):
        return f"I could not send a receipt for order {order_id}. {content.removeprefix('Error: ')}"
    return f"The receipt for order {order_id} is on its way to you: {content}"
