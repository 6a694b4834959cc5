"""What a model sends as arguments is taken exactly, or refused by name."""

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from agentruntime.exceptions import InvalidArguments, InvalidTool
from agentruntime.graph import tool


class Color(Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    zip_code: str = Field(alias="zip")


@tool
def order(
    n: int,
    price: Decimal,
    day: date,
    color: Color,
    size: Literal["S", "M"],
    to: Address,
    tags: list[str],
    gift: bool = False,
    note: str | None = None,
) -> str:
    """Order something.

    Args:
        n: how many
        price: what it costs
    """
    return ""


GOOD = {
    "n": 2,
    "price": "49.90",
    "day": "2026-11-30",
    "color": "red",
    "size": "M",
    "to": {"street": "Main", "zip": "1"},
    "tags": ["a"],
}


def test_types_come_as_declared_and_go_as_json_that_loads_again():
    values, stored = order.read_arguments(GOOD)
    assert (values["price"], values["day"], values["color"]) == (
        Decimal("49.90"),
        date(2026, 11, 30),
        Color.RED,
    )
    assert stored == {**GOOD, "gift": False, "note": None}
    assert order.load_arguments(stored) == values


@pytest.mark.parametrize(
    "changes",
    [
        {"n": "2"},
        {"n": 2.0},
        {"price": 49.9},
        {"price": 50},
    ],
)
def test_another_form_of_the_same_value_is_taken(changes):
    order.read_arguments({**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n": 2.5}, "n"),
        ({"n": True}, "n"),
        ({"gift": "yes"}, "gift"),
        ({"gift": 1}, "gift"),
        ({"price": "much"}, "price"),
        ({"size": "XL"}, "size"),
        ({"to": {"street": "Main"}}, "zip"),
        ({"extra": 1}, "extra"),
        ({"tags": "a"}, "tags"),
        ({"day": "tomorrow"}, "day"),
    ],
)
def test_another_value_is_refused_by_name(changes, named):
    with pytest.raises(InvalidArguments, match=named):
        order.read_arguments({**GOOD, **changes})


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 1, "n": 2}',
        '{"n": 1234567890123456.789}',
        '{"n": 1e400}',
        '{"n": NaN}',
        '{"n": "\\u0000"}',
        '{"n": "\\ud800"}',
        "[" * 100_000,
        '{"n": ' + "9" * 5000 + "}",
    ],
)
def test_text_that_would_not_be_kept_exactly_is_refused(text):
    with pytest.raises(InvalidArguments):
        order.read_arguments(text)


def test_the_schema_tells_the_model_what_the_docstring_says():
    described = order.schema["properties"]
    assert described["n"]["description"] == "how many"
    assert described["price"]["description"] == "what it costs"
    assert order.schema["additionalProperties"] is False
    assert order.description == "Order something."


def test_what_has_no_schema_is_refused_when_it_is_declared():
    with pytest.raises(InvalidTool, match="args"):
        tool(name="x")(lambda *args: None)
    with pytest.raises(InvalidTool, match="letters"):
        tool(name="not a name")(lambda: None)


def test_state_of_a_plain_type_is_an_argument_like_any_other():
    @tool
    def move(city: str, state: str, ctx: object) -> str:
        return ""

    assert list(move.schema["properties"]) == ["city", "state"]
    assert move.injected == {"ctx"}
