"""What a model sends as arguments is taken exactly, or refused by name."""

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Json, SecretStr

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


def taking(kind):
    """A tool with one argument, `x`, of this type."""

    def take(x):
        return x

    take.__annotations__ = {"x": kind}
    return tool(take)


@pytest.mark.parametrize(
    ("kind", "sent", "typed"),
    [
        (set[int], [5, 1000, 3], {3, 5, 1000}),
        (frozenset[str], ["b", "c", "a", "d"], {"a", "b", "c", "d"}),
        (Json[list[int]], "[1,2]", [1, 2]),
        (Annotated[date, Field(strict=True)], "2026-11-30", date(2026, 11, 30)),
    ],
)
def test_what_json_has_another_form_for_comes_back_as_it_was_sent(kind, sent, typed):
    values, stored = taking(kind).read_arguments({"x": sent})

    assert (values["x"], stored) == (typed, {"x": sent})
    assert taking(kind).load_arguments(stored) == values


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    color: Color


def test_a_strict_model_takes_what_its_schema_describes():
    values, _ = taking(Strict).read_arguments({"x": {"day": "2026-11-30", "color": "red"}})

    assert values["x"] == Strict(day=date(2026, 11, 30), color=Color.RED)


class Hiding(BaseModel):
    a: int
    b: int = Field(default=3, exclude=True)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (SecretStr, "hunter2"),
        (Hiding, {"a": 1, "b": 9}),
        (Annotated[str, AfterValidator(lambda text: f"{text}!")], "again"),
    ],
)
def test_what_would_run_with_another_value_than_was_sent_is_refused(kind, sent):
    with pytest.raises(InvalidArguments, match="come back equal"):
        taking(kind).read_arguments({"x": sent})


def test_what_a_validator_raises_is_about_the_arguments():
    def fail(value):
        raise KeyError("no such city")

    with pytest.raises(InvalidArguments, match="KeyError: 'no such city'"):
        taking(Annotated[str, BeforeValidator(fail)]).read_arguments({"x": "Atlantis"})


@pytest.mark.filterwarnings("ignore:Field name")
def test_a_parameter_may_be_called_as_models_call_their_own():
    def read(json: str, copy: bool, fields: int) -> str:
        return ""

    sent = {"json": "{}", "copy": True, "fields": 3}
    assert tool(read).read_arguments(sent) == (sent, sent)


@pytest.mark.parametrize("name", ["model_config", "model_dump", "model_extra"])
def test_a_parameter_whose_name_no_model_can_have_is_refused_by_name(name):
    scope = {}
    exec(f"def use({name}: str): ...", scope)

    with pytest.raises(InvalidTool, match=name):
        tool(scope["use"])
