"""Whether the options of a tool mean anything: said where it is defined, not when a call runs."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentruntime.graph.tools import ApprovalRule, Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
EFFECTS = ("repeatable", "once", "transactional")
LONGEST = timedelta(days=36_500)
"""What a database can still add to today's date."""
MOST = 1_000


def problem_of(made: Tool) -> str:
    """Return what is wrong with a tool, or empty text. Raises `InvalidTool` for a type that has no
    schema.
    """
    return next(_problems(made), "")


def _problems(made: Tool) -> Iterator[str]:
    if not isinstance(made.name, str) or not NAME.fullmatch(made.name):
        yield "a name has 1 to 64 letters, digits, _ or -"
    for name, wanted, is_right in OPTIONS:
        if not is_right(value := getattr(made, name)):
            yield f"`{name}` is {wanted}, not {_shown(value)}"
    if inspect.isgeneratorfunction(made.fn) or inspect.isasyncgenfunction(made.fn):
        yield "it yields, so that its body would never run: return a value"
    if made.effect == "transactional" and (made.is_async or made.isolation == "process"):
        yield "a transactional tool is a plain function: it works inside the database transaction"
    if made.runs == "client" and (made.effect == "transactional" or made.isolation == "process"):
        yield "what the client runs is neither transactional nor in a process of its own"
    if made.runs == "client":
        _ = made.result_schema  # raises InvalidTool for a type that has none
    known = made.parameter_names  # raises InvalidTool for what has no schema
    if made.approval is not None:
        yield from _problems_of_rule(made.approval, known)


def _problems_of_rule(rule: ApprovalRule, known: typing.AbstractSet[str]) -> Iterator[str]:
    for name, wanted, is_right in RULE:
        if not is_right(value := getattr(rule, name)):
            yield f"its approval's `{name}` is {wanted}, not {_shown(value)}"
    named = {rule.amount, rule.target, *rule.editable} - {""}
    if unknown := named - known:
        yield f"its approval names the parameters {sorted(unknown)}, which it does not have"


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except Exception:
        return f"a {type(value).__name__}"


def is_number(value: Any) -> bool:
    """Say whether this is a number that can be counted with, which NaN and infinity are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LONGEST.total_seconds() and not math.isnan(value)


def _is_count(value: Any, least: int, most: int = MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_span(value: Any) -> bool:
    return value is None or (isinstance(value, timedelta) and timedelta(0) < value <= LONGEST)


def _is_function(value: Any) -> bool:
    return value is None or callable(value)


def _are_errors(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(one, type) and issubclass(one, Exception) for one in value
    )


def _one_of(*words: str) -> tuple[str, Callable[[Any], bool]]:
    return f"one of {', '.join(words)}", lambda value: value in words


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_rule(value: Any) -> bool:
    return value is None or hasattr(value, "approvers")


Check = tuple[str, str, Callable[[Any], bool]]
SPAN = "a timedelta above zero and no longer than a hundred years, or None"
OPTIONS: tuple[Check, ...] = (
    ("effect", *_one_of(*EFFECTS)),
    ("isolation", *_one_of("thread", "process")),
    ("runs", *_one_of("server", "client")),
    ("approval", "an ApprovalRule, True or False", _is_rule),
    ("timeout", "a number of seconds or None", lambda value: value is None or is_number(value)),
    ("reconcile", "a function", _is_function),
    ("key_ttl", SPAN, _is_span),
    ("retries", f"a whole number from 0 to {MOST}", lambda value: _is_count(value, 0)),
    ("retry_on", "an exception class or several", _are_errors),
    ("retry_delay", "a number of seconds", lambda value: is_number(value) and value >= 0),
    (
        "concurrency",
        "a whole number above zero or None",
        lambda value: value is None or _is_count(value, 1, 1_000_000),
    ),
    ("sequential", "True or False", lambda value: isinstance(value, bool)),
)
RULE: tuple[Check, ...] = (
    ("title", "text", _is_text),
    ("when", "a function of the arguments", _is_function),
    ("permission", "text", _is_text),
    ("group", "text", _is_text),
    ("amount", "the name of a parameter", _is_text),
    ("currency", "text", _is_text),
    ("target", "the name of a parameter", _is_text),
    ("editable", "a tuple of names", lambda value: isinstance(value, tuple | list | set)),
    ("approvers", f"a whole number from 1 to {MOST}", lambda value: _is_count(value, 1)),
    ("expires_in", SPAN, _is_span),
    ("on_expiry", *_one_of("decline", "wait")),
    ("remind_after", SPAN, _is_span),
    ("escalate_after", SPAN, _is_span),
    ("escalate_to", "text", _is_text),
    ("recheck", "a function of the arguments", _is_function),
)
