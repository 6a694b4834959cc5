"""What a thread remembers between steps: `State`, its reducers, and how it is stored exactly.

A field is declared with a type; `Annotated[T, reducer]` joins an update to what is there with
`reducer(current, update)`, without one the update replaces. A value is stored as JSON only if
reading it back gives an equal value; what cannot be is refused, naming the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from agentruntime.exceptions import InvalidStateValue, StateNotStorable, UnknownStateField
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.graph.messages import Message
from agentruntime.graph.same_types import lost_type

Reducer = Callable[[Any, Any], Any]


class State(BaseModel):
    """The state of a thread. Subclass it to add fields; `messages` only ever grows."""

    model_config = ConfigDict(extra="forbid")

    messages: list[Message] = Field(default_factory=list)


@dataclass(frozen=True)
class StateField:
    """One declared field: its name, how a value is checked and stored, how updates are joined."""

    name: str
    adapter: TypeAdapter[Any]
    reducer: Reducer | None

    def check(self, value: Any) -> Any:
        """Return `value` as the declared type; raises `InvalidStateValue`."""
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidStateValue(field=self.name, reason=first_problem(error)) from None

    def join(self, current: Any, update: Any) -> Any:
        """Return `current` with `update` joined to it by the reducer, or replaced by it."""
        return self.check(self.reducer(current, update) if self.reducer else update)

    def dump(self, value: Any) -> Any:
        """Return `value` as plain JSON; raises `StateNotStorable` if it would not come back
        equal.
        """
        try:
            text = self.adapter.dump_json(value)
            stored = json.loads(text)
            check_json(stored, path=self.name)
            back = self.adapter.validate_json(text)
        except NotJson as error:
            raise StateNotStorable(field=self.name, reason=str(error)) from None
        except (ValueError, TypeError) as error:
            raise StateNotStorable(field=self.name, reason=str(error).splitlines()[0]) from None
        if back != value:
            reason = f"{type(value).__name__} would come back as {type(back).__name__}"
            raise StateNotStorable(field=self.name, reason=reason)
        if lost := lost_type(value, back):
            raise StateNotStorable(field=self.name, reason=lost)
        return stored

    def load(self, stored: Any) -> Any:
        """Return a stored value as the declared type; raises `InvalidStateValue`."""
        try:
            return self.adapter.validate_json(json.dumps(stored))
        except ValidationError as error:
            raise InvalidStateValue(field=self.name, reason=first_problem(error)) from None


@cache
def state_fields(kind: type[State]) -> Mapping[str, StateField]:
    """Return the declared fields of a state class by name, without `messages`."""
    return {
        name: StateField(name, _adapter(field.annotation), _reducer(field.metadata))
        for name, field in kind.model_fields.items()
        if name != "messages"
    }


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(
            annotation, config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        )
    except PydanticUserError:  # a model brings its own config
        return TypeAdapter(annotation)


def _reducer(metadata: list[Any]) -> Reducer | None:
    return next((item for item in metadata if callable(item)), None)


def field_of(kind: type[State], name: str) -> StateField:
    """Return one declared field; raises `UnknownStateField`."""
    fields = state_fields(kind)
    if name not in fields:
        raise UnknownStateField(field=name, known=", ".join(["messages", *fields]))
    return fields[name]


def join_update(state: State, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values of the fields that `update` names, joined to those of `state`."""
    return {
        name: field_of(type(state), name).join(getattr(state, name), value)
        for name, value in update.items()
    }


def dump_state(state: State) -> dict[str, Any]:
    """Return the fields of `state`, without its messages, as plain JSON; raises
    `StateNotStorable`.
    """
    return {
        name: field.dump(getattr(state, name)) for name, field in state_fields(type(state)).items()
    }


def load_state(kind: type[State], stored: Mapping[str, Any], messages: list[Message]) -> State:
    """Return the state that `dump_state` wrote. Raises `InvalidStateValue`, `UnknownStateField`."""
    values = {name: field_of(kind, name).load(value) for name, value in stored.items()}
    try:
        checked = kind(**values)
    except ValidationError as error:
        raise InvalidStateValue(
            field=str(error.errors()[0]["loc"][0]), reason=first_problem(error)
        ) from None
    checked.messages = messages
    return checked


def first_problem(error: ValidationError) -> str:
    """Return the first finding of a pydantic error as one short line, without the value."""
    finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in finding["loc"])
    return f"{place}: {finding['msg']}" if place else str(finding["msg"])
