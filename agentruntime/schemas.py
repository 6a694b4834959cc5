"""Checking values against JSON Schemas: answers of people and clients, arguments of MCP tools.

Schemas and values may come from anywhere, so a check ends in time and fetches nothing: patterns are
matched by an engine that is linear in the text, equal items are found by their digests, and what
takes longer than `MOST_SECONDS` all the same is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any

from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema

from agentruntime.graph.json_values import NotJson, canonical_json, check_json

MOST_SECONDS = 2.0
# Values and not schemas, whatever they look like.
OPAQUE = {"const", "default", "enum", "examples"}

_until: ContextVar[float] = ContextVar("checked_until")


class TookTooLong(Exception):
    """A check did not come to its end in time."""


def check_schema(value: Any, schema: Any) -> None:
    """Raise `NotJson` if the value does not fit the schema, or the schema is none.

    A pattern that only a backtracking engine could match (see `check_is_schema`) is not checked.
    """
    from jsonschema import exceptions  # loaded when first needed: most processes check nothing
    from referencing import Registry

    token = _until.set(time.monotonic() + MOST_SECONDS)
    try:
        kind = _kind_for(schema)
        kind.check_schema(schema)
        bounded = _bounded(kind)(schema, registry=Registry())  # it looks nothing up elsewhere
        error = exceptions.best_match(bounded.iter_errors(value))
    except TookTooLong:
        raise NotJson("$", "checking it against its schema takes too long") from None
    except Exception as error:  # no schema, a reference to nowhere, a pattern that is none
        raise NotJson("$", f"its schema cannot be used ({type(error).__name__})") from None
    finally:
        _until.reset(token)
    if error is not None:
        raise NotJson(error.json_path, error.message[:300])


def check_is_schema(schema: Any, path: str) -> None:
    """Raise `NotJson` unless this is a JSON Schema, of a draft that it names or of the last one.

    Its patterns have to be without look-around and references to groups: those may take for ever.
    """
    check_json(schema, path=path)
    check_form(schema, path, with_formats=True)
    for pattern in _patterns(schema):
        if _compiled(pattern) is None:
            raise NotJson(path, f"the pattern {pattern[:100]!r} cannot be matched in bounded time")


def check_form(schema: Any, path: str, *, with_formats: bool = False) -> None:
    """Raise `NotJson` unless this is a JSON Schema, whatever its patterns and addresses look like;
    `with_formats` those of this language.
    """
    from jsonschema import FormatChecker, SchemaError

    kind = _kind_for(schema)
    try:
        formats = kind.FORMAT_CHECKER if with_formats else FormatChecker(())
        kind.check_schema(schema, format_checker=formats)
    except SchemaError as error:
        raise NotJson(path, f"no JSON Schema: {error.message[:300]}") from None
    except Exception as error:
        raise NotJson(path, f"no JSON Schema ({type(error).__name__})") from None


def _kind_for(schema: Any) -> Any:
    from jsonschema import validators

    return validators.validator_for(schema, default=validators.Draft202012Validator)


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _patterns(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for name, one in schema.items():
            if name not in OPAQUE:
                yield from _patterns(one)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> SchemaValidator | None:
    """Return what matches a pattern, or None where the engine does not know it."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError:
        return None


def _matches(pattern: str, text: str) -> bool:
    known = _compiled(pattern)
    return known is None or known.isinstance_python(text)


# --- keywords --------------------------------------------------------------------------------


@cache
def _bounded(kind: Any) -> Any:
    """Return a kind of validator with keywords that end in time."""
    from jsonschema import validators

    ours = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "unevaluatedProperties": _unevaluated(kind.VALIDATORS.get("unevaluatedProperties")),
        "uniqueItems": _unique_items,
    }
    known = {
        **kind.VALIDATORS,
        **{name: one for name, one in ours.items() if name in kind.VALIDATORS},
    }
    return validators.extend(kind, {name: _in_time(one) for name, one in known.items()})


def _in_time(keyword: Any) -> Any:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if time.monotonic() > _until.get():
            raise TookTooLong
        yield from keyword(validator, wanted, instance, schema) or ()

    return check


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[Any]:
    for pattern, inner in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        name
        for name in instance
        if name not in named and not any(_matches(pattern, name) for pattern in patterns)
    ]
    for name in extras if isinstance(wanted, dict) else ():
        yield from validator.descend(instance[name], wanted, path=name)
    if wanted is False and extras:
        told = ", ".join(map(repr, extras[:5]))
        yield ValidationError(f"Additional properties are not allowed ({told})")


def _unevaluated(keyword: Any) -> Any:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if "patternProperties" in canonical_json(schema):  # the library would match them itself
            raise ValueError("unevaluatedProperties beside patternProperties")
        yield from keyword(validator, wanted, instance, schema) or ()

    return check


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    if len({canonical_json(_same_numbers(one)) for one in instance}) < len(instance):
        yield ValidationError("the list has equal items")


def _same_numbers(value: Any) -> Any:
    """Return the value with 1.0 as 1: they are equal in JSON."""
    if isinstance(value, dict):
        return {name: _same_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_same_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
