"""The rules of the retail shop: what its tools answer and what they change.

Nothing here knows of files, locks, threads or the runtime. A `Shop` is one customer's view of the
catalogue: it reads the shared data and keeps what was changed in an overlay of whole orders and
users, so the overlay is the end state. Money is `Decimal` everywhere and therefore exact.
"""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.arithmetic import calculate

Json = Any
CENT = Decimal("0.01")
REASONS = ("no longer needed", "ordered by mistake")
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


class Refused(Exception):
    """The call breaks a condition of the shop; nothing was changed."""


def load(directory: Path) -> dict[str, dict[str, Json]]:
    """Orders, users and products of a data directory, by id; amounts as Decimal."""
    return {
        name: json.loads((directory / f"{name}.json").read_text(), parse_float=Decimal)
        for name in ("orders", "users", "products")
    }


def require(condition: bool, sentence: str) -> None:
    """Refuse with `sentence` unless the condition holds."""
    if not condition:
        raise Refused(sentence)


class Shop:
    """One view of the shop: the data of `load`, and the orders and users changed so far."""

    def __init__(self, data: dict[str, dict[str, Json]]) -> None:
        self.data = data
        self.changed: dict[str, dict[str, Json]] = {"orders": {}, "users": {}}

    def call(self, tool: str, arguments: dict[str, Json]) -> Json:
        """The answer of a tool: JSON-like data, or text starting `Error:` when it is refused."""
        try:
            return getattr(self, tool)(**arguments)
        except Refused as refusal:
            return f"Error: {refusal}"

    def state(self) -> dict[str, dict[str, Json]]:
        """The end state as {"orders": {id: order}, "users": {id: user}}: only what was changed."""
        return {
            kind: {key: row for key, row in rows.items() if row != self.data[kind][key]}
            for kind, rows in self.changed.items()
        }

    # What is read.

    def find_user_id_by_email(self, email: str) -> str:
        """The id of the customer with this e-mail address, in any case of letters."""
        wanted = email.lower()
        for key, user in self.data["users"].items():
            if user["email"].lower() == wanted:
                return key
        raise Refused("user not found")

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """The id of the customer with this name whose address has this zip code."""
        wanted = (first_name.lower(), last_name.lower())
        for key in self.data["users"]:
            user = self._user(key)
            name = (user["name"]["first_name"].lower(), user["name"]["last_name"].lower())
            if name == wanted and user["address"]["zip"] == zip:
                return key
        raise Refused("user not found")

    def get_user_details(self, user_id: str) -> Json:
        """The customer: name, address, payment methods, order ids."""
        return self._user(user_id)

    def get_order_details(self, order_id: str) -> Json:
        """The order: status, items, payments."""
        return self._order(order_id)

    def get_product_details(self, product_id: str) -> Json:
        """The product with all its variants."""
        require(product_id in self.data["products"], "product not found")
        return self.data["products"][product_id]

    def list_all_product_types(self) -> dict[str, str]:
        """Product ids by product name, in the order of the names."""
        rows = self.data["products"].items()
        return dict(sorted((product["name"], key) for key, product in rows))

    def calculate(self, expression: str) -> str:
        """The value of an expression in numbers, with two decimals."""
        try:
            return str(calculate(expression).quantize(CENT))
        except ArithmeticError as error:
            raise Refused(str(error)) from None

    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the conversation over."""
        return "Transfer successful"

    # What changes orders or money: every condition first, then the change.

    def cancel_pending_order(self, order_id: str, reason: str) -> Json:
        """Cancel a pending order and give every payment of it back."""
        order = self._order(order_id)
        require(order["status"] == "pending", "only a pending order can be cancelled")
        require(reason in REASONS, "unknown reason")
        order = self._edit("orders", order_id)
        for paid in list(order["payment_history"]):
            self._record(order, "refund", paid["amount"], paid["payment_method_id"])
        order |= {"status": "cancelled", "cancel_reason": reason}
        return order

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Json:
        """Change items for other variants of the same products; the difference is paid at once."""
        order = self._order(order_id)
        require(order["status"] == "pending", "only a pending order can be modified")
        pairs, difference = self._swap(order, item_ids, new_item_ids, payment_method_id)
        order = self._edit("orders", order_id)
        kind = "payment" if difference > 0 else "refund"
        self._record(order, kind, abs(difference), payment_method_id)
        for old, new in pairs:
            item = self._items(order)[old["item_id"]]
            item |= {key: new[key] for key in ("item_id", "price", "options")}
        order["status"] = "pending (item modified)"
        return order

    def modify_pending_order_address(
        self,
        order_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,
    ) -> Json:
        """Send a pending order somewhere else."""
        order = self._order(order_id)
        require(order["status"] == "pending", "only a pending order can be modified")
        order = self._edit("orders", order_id)
        order["address"] = address_of(address1, address2, city, state, country, zip)
        return order

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Json:
        """Pay a pending order with another method and give the first payment back."""
        order = self._order(order_id)
        require(order["status"] == "pending", "only a pending order can be modified")
        method = self._method(order, payment_method_id)
        history = order["payment_history"]
        single = len(history) == 1 and history[0]["transaction_type"] == "payment"
        require(single, "the order must have exactly one payment")
        paid = history[0]
        require(paid["payment_method_id"] != payment_method_id, "that method has paid already")
        self._must_cover(method, paid["amount"])
        order = self._edit("orders", order_id)
        self._record(order, "payment", paid["amount"], payment_method_id)
        self._record(order, "refund", paid["amount"], paid["payment_method_id"])
        return order

    def return_delivered_order_items(
        self, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> Json:
        """Ask to send items of a delivered order back."""
        order = self._order(order_id)
        require(order["status"] == "delivered", "only a delivered order can be returned")
        method = self._method(order, payment_method_id)
        original = order["payment_history"][0]["payment_method_id"]
        allowed = method["source"] == "gift_card" or payment_method_id == original
        require(allowed, "a refund goes to the original method or a gift card")
        self._must_hold(order, item_ids)
        order = self._edit("orders", order_id)
        order |= {
            "status": "return requested",
            "return_items": sorted(item_ids),
            "return_payment_method_id": payment_method_id,
        }
        return order

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Json:
        """Ask to change items of a delivered order for other variants."""
        order = self._order(order_id)
        require(order["status"] == "delivered", "only a delivered order can be exchanged")
        _, difference = self._swap(order, item_ids, new_item_ids, payment_method_id)
        order = self._edit("orders", order_id)
        order |= {
            "status": "exchange requested",
            "exchange_items": sorted(item_ids),
            "exchange_new_items": sorted(new_item_ids),
            "exchange_payment_method_id": payment_method_id,
            "exchange_price_difference": difference,
        }
        return order

    def modify_user_address(
        self,
        user_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,
    ) -> Json:
        """Change the default address of a customer."""
        self._user(user_id)
        user = self._edit("users", user_id)
        user["address"] = address_of(address1, address2, city, state, country, zip)
        return user

    # Parts.

    def _get(self, kind: str, key: str) -> Json:
        row = self.changed[kind].get(key) or self.data[kind].get(key)
        require(row is not None, f"{kind[:-1]} not found")
        return row

    def _order(self, order_id: str) -> Json:
        return self._get("orders", order_id)

    def _user(self, user_id: str) -> Json:
        return self._get("users", user_id)

    def _edit(self, kind: str, key: str) -> Json:
        """The row to change: the overlay's own copy."""
        return self.changed[kind].setdefault(key, copy.deepcopy(self.data[kind][key]))

    def _items(self, order: Json) -> dict[str, Json]:
        """The order's items by item id; of two equal ones the first."""
        return {item["item_id"]: item for item in reversed(order["items"])}

    def _must_hold(self, order: Json, item_ids: list[str]) -> None:
        held = [item["item_id"] for item in order["items"]]
        for item_id in item_ids:
            require(item_ids.count(item_id) <= held.count(item_id), "the order has no such item")

    def _method(self, order: Json, payment_method_id: str) -> Json:
        methods = self._user(order["user_id"])["payment_methods"]
        require(payment_method_id in methods, "payment method not found")
        return methods[payment_method_id]

    def _must_cover(self, method: Json, amount: Decimal) -> None:
        covered = method["source"] != "gift_card" or Decimal(method["balance"]) >= amount
        require(covered, "the gift card does not cover the amount")

    def _swap(
        self, order: Json, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> tuple[list[tuple[Json, Json]], Decimal]:
        """The (item, variant) pairs of a change and what it costs; refuses what is not allowed."""
        self._must_hold(order, item_ids)
        require(len(item_ids) == len(new_item_ids), "the items must pair up")
        items, pairs = self._items(order), []
        for old_id, new_id in zip(item_ids, new_item_ids, strict=True):
            product = self.data["products"][items[old_id]["product_id"]]
            variant = product["variants"].get(new_id)
            require(bool(variant and variant["available"]), f"new item {new_id} is not available")
            pairs.append((items[old_id], variant))
        difference = sum((new["price"] - old["price"] for old, new in pairs), Decimal(0))
        self._must_cover(self._method(order, payment_method_id), difference)
        return pairs, difference

    def _record(self, order: Json, kind: str, amount: Decimal, method_id: str) -> None:
        """Append a payment or refund to the order, and move a gift card's balance with it."""
        order["payment_history"].append(
            {"transaction_type": kind, "amount": amount, "payment_method_id": method_id}
        )
        method = self._user(order["user_id"])["payment_methods"][method_id]
        if method["source"] == "gift_card":
            user = self._edit("users", order["user_id"])
            card = user["payment_methods"][method_id]
            moved = amount if kind == "refund" else -amount
            card["balance"] = (Decimal(card["balance"]) + moved).quantize(CENT)


def address_of(*values: str) -> dict[str, str]:
    """An address from its six values in the order of `ADDRESS`."""
    return dict(zip(ADDRESS, values, strict=True))
