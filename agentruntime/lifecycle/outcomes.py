"""What a call came to: a result, its deltas, or an error, in the form in which it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

from pydantic_core import to_jsonable_python

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import AgentRuntimeError, ResultNotStorable, ToolError, ToolFailed
from agentruntime.graph.jobs import Pending, name_of
from agentruntime.graph.json_values import MAX_DEPTH, NotJson, check_json
from agentruntime.graph.masking import MASK, mask
from agentruntime.graph.state import State, field_of
from agentruntime.graph.tools import Tool, ToolResult
from agentruntime.lifecycle.finish import readable
from agentruntime.models import CallStatus


@dataclass(frozen=True)
class Outcome:
    """How a call ended: a ledger status, and what goes into its row."""

    status: str
    result: Any = None
    state_update: dict[str, Any] = field(default_factory=dict)
    error: dict[str, str] | None = None
    outside: dict[str, Any] | None = None
    """The job that goes on elsewhere, of a call that has no outcome yet."""


def succeeded(tool: Tool, kind: type[State], value: Any) -> Outcome:
    """Return the outcome of a call that returned. What cannot be stored is said, never repeated."""
    if isinstance(value, Pending):
        return _pending(tool, value)
    try:
        content, update = (
            (value.content, dict(value.update)) if isinstance(value, ToolResult) else (value, {})
        )
        result = _plain(content)
        deltas = {name: _delta(kind, name, delta) for name, delta in update.items()}
        return Outcome(CallStatus.SUCCEEDED, result, deltas)
    except Exception as error:  # the value is the tool's, and so is any code that it runs
        reason = readable(words_of(error) or type(error).__name__, 300).rstrip(".")
        unstorable = ResultNotStorable(tool=tool.name, reason=reason)
        return Outcome(CallStatus.SUCCEEDED, error=as_error(unstorable))


def _pending(tool: Tool, job: Pending) -> Outcome:
    problem = job.problem
    try:
        handle = _plain(job.handle)
    except Exception as error:  # as above
        handle, problem = None, f"its handle cannot be stored: {readable(words_of(error), 300)}"
    if problem:
        unstorable = ResultNotStorable(tool=tool.name, reason=f"it is a job, but {problem}")
        return Outcome(CallStatus.SUCCEEDED, error=as_error(unstorable))
    poll = name_of(job.poll) if job.poll is not None else None
    waits = {"kind": "job", "handle": handle, "poll": poll}
    return Outcome(
        CallStatus.RUNNING, outside={**waits, "every": job.every, "deadline": job.deadline}
    )


def words_of(error: BaseException) -> str:
    """Return what an exception says; one that cannot even say it fails nothing."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be read"


def _plain(value: Any) -> Any:
    _refuse_loss(value)
    plain = to_jsonable_python(value, inf_nan_mode="constants", bytes_mode="base64")
    check_json(plain, path="result", max_bytes=runtime_settings().MAX_RESULT_BYTES)
    return plain


def _refuse_loss(value: Any, path: str = "result", depth: int = 0) -> None:
    """Raise `NotJson` where two keys of an object would become the same text, and for a generator:
    its code would run here, past the tool's timeout, and perhaps without an end.
    """
    if depth > MAX_DEPTH:
        return  # the gate says so
    if isinstance(value, GeneratorType):
        raise NotJson(path, "a generator is no value; return a list")
    if isinstance(value, dict):
        if len({str(key) for key in value}) < len(value):
            raise NotJson(path, "two keys of an object would become the same text")
        for key, item in value.items():
            _refuse_loss(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_loss(item, path, depth + 1)


def _delta(kind: type[State], name: str, value: Any) -> Any:
    field_of(kind, name)
    return _plain(value)


def load_delta(kind: type[State], name: str, stored: Any) -> Any:
    """Return a stored delta as the field's type, where it has that type; else as it is stored."""
    found = field_of(kind, name)
    try:
        return found.load(stored)
    except AgentRuntimeError:
        return stored


def failed(error: BaseException, arguments: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a call that raised; secret arguments are masked in what it says.

    One that did its work and whose result nobody can keep has succeeded, with that error.
    """
    if not isinstance(error, ToolError):
        reason = _without_secrets(words_of(error), arguments or {})
        kind = getattr(error, "raised_kind", type(error).__name__)
        error = ToolFailed(kind=kind, reason=reason or "no reason given")
    worked = isinstance(error, ResultNotStorable)
    return Outcome(CallStatus.SUCCEEDED if worked else CallStatus.FAILED, error=as_error(error))


def as_error(error: AgentRuntimeError) -> dict[str, str]:
    """Return an error as it is stored and shown."""
    return {"code": error.code, "detail": readable(str(error))}


def _without_secrets(text: str, arguments: Mapping[str, Any]) -> str:
    for secret in _secrets(arguments, mask(dict(arguments), runtime_settings().SECRET_FIELDS)):
        text = text.replace(secret, MASK)
    return text


def _secrets(given: Any, masked: Any) -> list[str]:
    if masked == MASK and given != MASK:
        return [str(given)] if isinstance(given, str | int | float) and str(given) else []
    if isinstance(given, dict):
        return [one for key in given for one in _secrets(given[key], masked[key])]
    if isinstance(given, list):
        return [one for pair in zip(given, masked, strict=True) for one in _secrets(*pair)]
    return []
