"""What a branch begins with and what its steps bring, as it is stored and read back.

The state of a branch is not stored: it is the state at which it was opened, with what was given to
it in place, and the changes of its steps joined to that in order. Both a worker that goes on and
one that takes over read them back from their stored form, so that both see the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import StateNotStorable, StepError
from agentruntime.graph import State
from agentruntime.graph.definition import Onward, Send
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.graph.messages import Message
from agentruntime.graph.state import field_of, state_fields
from agentruntime.lifecycle.outcomes import load_delta
from agentruntime.lifecycle.results import NodeResult
from agentruntime.models import BranchStep

JOIN, REPLACE = "join", "replace"


@dataclass(frozen=True)
class Change:
    """One change of a state field: an update to join, or a value that replaces what is there."""

    field: str
    how: str
    value: Any
    by: str = ""


@dataclass
class History:
    """What a branch has brought so far."""

    messages: list[Message] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


def beginnings(
    onward: Onward, state: State, thread_id: uuid.UUID, node: str = ""
) -> list[dict[str, Any]]:
    """Return the columns with which the branches of a fork begin. Raises `StepError`."""
    kind = type(state)
    return [
        {
            "node": node,
            "next_node": send.node,
            "result": {"until": onward.until, **_dump_given(kind, state, send, thread_id)},
        }
        for send in onward.branches
    ]


def _dump_given(
    kind: type[State], state: State, send: Send, thread_id: uuid.UUID
) -> dict[str, Any]:
    given = send.given
    values: dict[str, Any] = (
        {name: getattr(given, name) for name in ("messages", *state_fields(type(given)))}
        if isinstance(given, State)
        else dict(given)
    )
    messages = values.pop("messages", None)
    if messages == state.messages:
        messages = None
    elif messages is not None:
        listed = [messages] if isinstance(messages, Message) else list(messages)
        messages = [one.settled(thread_id).model_dump(mode="json") for one in listed]
    fields = {name: field_of(kind, name) for name in values}
    stored = {name: fields[name].dump(fields[name].check(one)) for name, one in values.items()}
    return {"given": stored, "messages": messages}


def given_state(state: State, beginning: BranchStep) -> State:
    """Return the state that a branch begins with, opened at `state`."""
    kind, result = type(state), beginning.result
    values = {name: field_of(kind, name).load(one) for name, one in result["given"].items()}
    if result["messages"] is not None:
        values["messages"] = [Message.model_validate(one) for one in result["messages"]]
    return state.model_copy(update=values)


def changes_of(kind: type[State], result: NodeResult, node: str) -> list[Change]:
    """Return the changes that a step brings, as they come back from the store."""
    changes = [Change(name, JOIN, value, node) for name, value in result.update.items()]
    changes += [Change(name, REPLACE, value, node) for name, value in result.replaced.items()]
    changes += [
        Change(name, JOIN, value, tool)
        for name, set_by in result.deltas.items()
        for tool, value in set_by
    ]
    return load_changes(kind, dump_changes(kind, changes))


def dump_changes(kind: type[State], changes: Iterable[Change]) -> list[list[Any]]:
    """Return changes as plain JSON. Raises `StepError` for what cannot be stored."""
    return [[one.field, one.how, _dump(kind, one), one.by] for one in changes]


def _dump(kind: type[State], change: Change) -> Any:
    known = field_of(kind, change.field)
    if known.reducer is None or change.how == REPLACE:
        return known.dump(known.check(change.value))
    try:
        return known.dump(change.value)
    except StepError:  # what is joined need not be of the field's type
        return _plain(change)


def _plain(change: Change) -> Any:
    try:
        stored = to_jsonable_python(change.value, inf_nan_mode="constants", bytes_mode="base64")
        check_json(stored, path=change.field, max_bytes=runtime_settings().MAX_RESULT_BYTES)
        return stored
    except (NotJson, PydanticSerializationError, RecursionError) as error:
        raise StateNotStorable(field=change.field, reason=str(error)) from None


def load_changes(kind: type[State], stored: Iterable[list[Any]]) -> list[Change]:
    """Return the changes that `dump_changes` gave."""
    return [Change(name, how, load_delta(kind, name, value), by) for name, how, value, by in stored]


def as_result(messages: Iterable[Message], changes: Iterable[Change], **more: Any) -> NodeResult:
    """Return what a step brought in the form in which it is joined to a state."""
    deltas: dict[str, list[tuple[str, Any]]] = {}
    replaced: dict[str, Any] = {}
    for one in changes:
        if one.how == JOIN:
            deltas.setdefault(one.field, []).append((one.by, one.value))
        else:
            replaced[one.field] = one.value
    return NodeResult(messages=list(messages), deltas=deltas, replaced=replaced, **more)


def apply(state: State, changes: Iterable[Change], messages: Iterable[Message] = ()) -> State:
    """Return the state after some changes, in their order."""
    kind, values = type(state), {"messages": [*state.messages, *messages]}
    for one in changes:
        known = field_of(kind, one.field)
        current = values.get(one.field, getattr(state, one.field))
        joined = known.check(one.value) if one.how == REPLACE else known.join(current, one.value)
        values[one.field] = joined
    return state.model_copy(update=values)


def defaults(kind: type[State], names: Iterable[str]) -> dict[str, Any]:
    """Return the values that some fields begin with."""
    fields = kind.model_fields
    return {name: fields[name].get_default(call_default_factory=True) for name in names}
