"""Values of every kind in the state: they come back equal and of their types, or are refused."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, create_model

from agentruntime.exceptions import StateNotStorable
from agentruntime.graph import State
from agentruntime.graph.state import dump_state, load_state


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Item(BaseModel):
    name: str
    price: Decimal
    more: Any = None


@dataclass
class Point:
    x: int
    more: Any = None


class Loud(str):
    pass


class Exact(float):  # as numpy's float64 is
    pass


Pair = namedtuple("Pair", "a b")
MOMENT = datetime(2026, 3, 29, 2, 30, 0, 123456)
KINDS = [
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+3")),
    (UUID, UUID(int=5)),
    (datetime, MOMENT),
    (datetime, MOMENT.replace(tzinfo=UTC)),
    (datetime, MOMENT.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (date, date(2026, 2, 28)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (bytes, b"\x00\xff"),
    (set[str], {"a"}),
    (frozenset[int], frozenset({1})),
    (tuple[int, str], (1, "a")),
    (Colour, Colour.RED),
    (Word, Word.RED),
    (Number, Number.ONE),
    (Fraction, Fraction(1, 3)),
    (Item, Item(name="tea", price=Decimal("2.50"))),
    (Point, Point(1)),
    (dict[str, Decimal], {"b": Decimal("1.0"), "a": Decimal("2")}),
    (dict[int, str], {1: "a"}),
    (list[Word], [Word.RED]),
    (list[Item], [Item(name="tea", price=Decimal(1), more=[1, "a", None])]),
    (Any, {"a": [1, 2.5, True, None, "ü", {"b": []}]}),
]


def round_trip(annotation, value):
    kind = create_model("Holder", __base__=State, field=(annotation, ...))
    stored = dump_state(kind(field=value))
    return load_state(kind, stored, []).field


@pytest.mark.parametrize(("annotation", "value"), KINDS, ids=lambda one: repr(one)[:40])
def test_what_is_declared_comes_back_equal_and_of_its_type(annotation, value):
    back = round_trip(annotation, value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, set | datetime)


LOST = [
    Decimal("1"), UUID(int=5), MOMENT, b"x", {"a"}, (1, 2), Colour.RED, Word.RED, Number.ONE,
    Fraction(1, 3), Pair(1, 2), Loud("a"), Exact(1.5), OrderedDict(a=1), defaultdict(list, a=[1]),
    Item(name="a", price=Decimal(1)), Point(1), {1: "a"}, {(1, 2): 3}, {None: 1}, float("inf"),
    object(),
]  # fmt: skip


@pytest.mark.parametrize("within", ["itself", "a list", "a dict", "a model", "a dataclass"])
@pytest.mark.parametrize("value", LOST, ids=lambda one: type(one).__name__)
def test_what_would_come_back_as_something_else_is_refused_by_name(value, within):
    annotation, held = {
        "itself": (Any, value),
        "a list": (Any, [0, value]),
        "a dict": (Any, {"deep": {"a": [value]}}),
        "a model": (Item, Item(name="a", price=Decimal(1), more=[value])),
        "a dataclass": (Point, Point(1, more={"a": value})),
    }[within]
    with pytest.raises(StateNotStorable) as refused:
        round_trip(annotation, held)
    assert refused.value.facts["field"] == "field"
