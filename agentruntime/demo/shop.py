"""The shop that the sample agents work for: its orders, its payment gateway, its post room.

Every change of the world is a line in a file of `DEMO_DIR`: `payments.jsonl`, `mails.jsonl` and
`warehouse.jsonl`. The gateway honours idempotency keys as real ones do: the same key and request
gets the stored answer and moves no money, the same key with another request is an error.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from django.conf import settings

from agentruntime.demo.journal import Entry, Journal

CENT = Decimal("0.01")
OrderStatus = Literal["being packed", "on its way", "delivered", "returned", "cancelled"]


class OrderNotFound(LookupError):
    """The shop has no order of this number."""


class PaymentRefused(Exception):
    """The gateway did not move the money, and says why."""


class KeyReused(PaymentRefused):
    """An idempotency key came back with another request than its first."""


@dataclass(frozen=True)
class Order:
    """What was bought, what was paid (euros), and how far it has come."""

    id: str
    item: str
    amount: Decimal
    status: OrderStatus
    due: str = ""
    card_closed: bool = False


def _orders(*orders: Order) -> dict[str, Order]:
    return {order.id: order for order in orders}


ORDERS = _orders(
    Order("1040", "Bread board, oak", Decimal("34.00"), "delivered"),
    Order("1041", "Linen apron", Decimal("28.50"), "delivered"),
    Order("1042", "Teapot, stoneware", Decimal("49.90"), "delivered"),
    Order("1043", "Six tea cups", Decimal("72.00"), "on its way", due="Thursday"),
    Order("1044", "Tea strainer", Decimal("7.50"), "delivered"),
    Order("1045", "Kettle, enamel", Decimal("89.00"), "being packed", due="next Tuesday"),
    Order("1046", "Cast-iron pan", Decimal("129.00"), "returned"),
    Order("1047", "Honey, two jars", Decimal("15.80"), "delivered"),
    Order("1048", "Espresso machine", Decimal("1249.00"), "delivered"),
    Order("1049", "Table runner", Decimal("39.95"), "cancelled"),
    Order("1050", "Cake stand", Decimal("56.00"), "delivered", card_closed=True),
    Order("1051", "Mortar and pestle", Decimal("31.20"), "on its way", due="tomorrow"),
    Order("1052", "Salad servers", Decimal("22.40"), "delivered"),
)


def find_order(order_id: str) -> Order:
    """Return the order of this number; raises `OrderNotFound`."""
    try:
        return ORDERS[order_id.strip().lstrip("#")]
    except KeyError:
        raise OrderNotFound(f"There is no order {order_id[:40]}.") from None


def demo_dir() -> Path:
    """Return the folder of the shop's files: the setting `DEMO_DIR`, or `var/demo`."""
    found = getattr(settings, "DEMO_DIR", None)
    return Path(found) if found else Path(settings.BASE_DIR) / "var" / "demo"


class Gateway:
    """The payment provider. A line of its ledger is a movement, or a request it only repeated."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def refund(self, order: Order, amount: Decimal, key: str) -> dict[str, Any]:
        """Pay money back once per key; return the provider's answer. Raises `PaymentRefused`."""
        if order.card_closed:
            raise PaymentRefused("the card that paid was closed; the bank takes no refund for it")
        return self._move("refund", order.id, amount, key)

    def charge(self, order_id: str, amount: Decimal, key: str) -> dict[str, Any]:
        """Take money once per key; return the provider's answer. Raises `PaymentRefused`."""
        return self._move("charge", order_id, amount, key)

    def moved(self, kind: str, order_id: str = "") -> list[Entry]:
        """Return the ledger's movements of a kind ("refund", "charge"), of one order if named."""
        return [
            entry
            for entry in self.journal.entries()
            if entry["kind"] == kind and order_id in ("", entry["order_id"])
        ]

    def _move(self, kind: str, order_id: str, amount: Decimal, key: str) -> dict[str, Any]:
        request = {"order_id": order_id, "amount": str(money(amount))}
        if not key:
            raise PaymentRefused("a payment needs an idempotency key")
        with self.journal.locked() as page:
            first = page.first_with(key)
            if first is None:
                answer = {"id": f"{kind[:2]}_{secrets.token_hex(6)}", **request}
                page.append(kind=kind, **request, key=key, answer=answer)
                return answer
            if first["kind"] != kind or any(first[name] != request[name] for name in request):
                raise KeyReused(f"the key {key} was used for another request")
            page.append(kind="repeat", of=first["answer"]["id"], **request, key=key)
            return dict(first["answer"])


def money(amount: Decimal) -> Decimal:
    """Return `amount` in whole cents; raises `PaymentRefused` for what is no sum of money."""
    try:
        whole = amount.quantize(CENT)
    except InvalidOperation:
        raise PaymentRefused(f"{amount} is no sum of money") from None
    if whole != amount or whole <= 0:
        raise PaymentRefused(f"{amount} is no sum of money; it takes whole cents above zero")
    return whole


def gateway() -> Gateway:
    """Return the gateway with its ledger, `payments.jsonl`."""
    return Gateway(Journal(demo_dir() / "payments.jsonl"))


def outbox() -> Journal:
    """Return the mails that were sent, `mails.jsonl`."""
    return Journal(demo_dir() / "mails.jsonl")


def warehouse() -> Journal:
    """Return what the warehouse was told, `warehouse.jsonl`."""
    return Journal(demo_dir() / "warehouse.jsonl")
