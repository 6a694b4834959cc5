"""Checks against schemas of anybody end in time, fetch nothing, and find what does not fit."""

import time

import pytest

from agentruntime import schemas
from agentruntime.graph.json_values import NotJson
from agentruntime.schemas import check_is_schema, check_schema

SLOW = "^(a+)+$"
EVIL = "a" * 40 + "!"
DEEP = {
    "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}, "minItems": n} for n in (2, 3)]}}
}


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (EVIL, {"pattern": SLOW}, "does not match"),
        ({EVIL: 1}, {"patternProperties": {SLOW: {}}, "additionalProperties": False}, "allowed"),
        ({"aa": 1}, {"patternProperties": {SLOW: {"type": "string"}}}, "not of type"),
        ({"b": 1}, {"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, "type"),
        ([{"a": 1.0}, {"a": 1}], {"uniqueItems": True}, "equal items"),
        ([{}] * 20_000, {"uniqueItems": True}, "equal items"),
        ({"a": 1}, {"properties": {"b": {}}, "unevaluatedProperties": False}, "nevaluated"),
        (1, {"$ref": "http://127.0.0.1:1/schema"}, "cannot be used"),
        (1, {"$ref": "#"}, "cannot be used"),
        (1, {"type": 7}, "cannot be used"),
    ],
)
def test_what_does_not_fit_is_said_in_time(value, schema, said):
    begun = time.monotonic()
    with pytest.raises(NotJson, match=said):
        check_schema(value, schema)
    assert time.monotonic() - begun < 2 * schemas.MOST_SECONDS


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("aaa", {"pattern": SLOW}),
        ([1, True, "1"], {"uniqueItems": True}),
        ({"aa": 1, "b": 2}, {"patternProperties": {SLOW: {}}, "properties": {"b": {}},
                             "additionalProperties": False}),
        ("x", {"pattern": "(?=nobody)"}),
    ],
)  # fmt: skip
def test_what_fits_is_taken(value, schema):
    check_schema(value, schema)


def test_a_check_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(schemas, "MOST_SECONDS", 0.05)
    with pytest.raises(NotJson, match="takes too long"):
        check_schema(nested(14), {**DEEP, "$ref": "#/$defs/a"})


@pytest.mark.parametrize("pattern", ["(?=x)", r"(a)\1"])
def test_a_pattern_that_may_take_for_ever_is_refused_where_it_is_asked(pattern):
    for schema in ({"pattern": pattern}, {"items": {"patternProperties": {pattern: {}}}}):
        with pytest.raises(NotJson, match="bounded time"):
            check_is_schema(schema, "schema")
    check_is_schema({"enum": [{"pattern": pattern}]}, "schema")
    check_is_schema({"pattern": SLOW}, "schema")
