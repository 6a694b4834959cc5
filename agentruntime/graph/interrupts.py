"""Asking a person, and doing something at most once, from inside a node or tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentruntime.graph.context import Execution, current_execution


def interrupt(payload: Any, *, message: str = "", response_schema: Any = None) -> Any:
    """Return the answer to this question; until there is one, pause the run.

    `payload` is JSON, `message` the question in words, `response_schema` a JSON Schema or a type
    that the answer must fit. On resume the node or tool runs again from its first line; an answer
    is used only for an equal question (same payload, same turn among equals). Falsy answers are
    answers. Raises `RuntimeError` outside of a node or tool.
    """
    return _execution("interrupt").answer(payload, message, response_schema)


def once(name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run `fn(*args, **kwargs)` at most once per node call or tool call; return its recorded
    result.

    The result must be JSON. If a worker died inside `fn`, whether it took effect is unknown and a
    person is asked, as for a tool of effect "once". If `fn` itself asks a person, the step counts
    as not begun, and `fn` runs again from its first line with the answer: what must not happen
    twice belongs after the question, or in a step of its own. With an async `fn`, await what this
    returns.
    """
    return _execution("once").once(name, fn, args, kwargs)


def _execution(asked: str) -> Execution:
    execution = current_execution.get()
    if execution is None:
        raise RuntimeError(f"{asked}() works only inside a node or tool of a run.")
    return execution
