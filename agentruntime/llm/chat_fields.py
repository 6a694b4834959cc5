"""Fields and calls of chat completions that servers word in their own way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Fields of a message that the protocol names, or that the library maps to thinking and citations.
MESSAGE_FIELDS = {
    "role", "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "name",
}  # fmt: skip
THINKING_FIELDS = {"reasoning", "reasoning_content"}
CALL_FIELDS = {"id", "type", "function", "index", "custom"}
FUNCTION_FIELDS = {"name", "arguments"}
# Within an unknown field these name a thing and are not continued from delta to delta.
WHOLE = {"id", "type", "index", "role", "format", "name"}


def unknown_message_fields(message: Mapping[str, Any], thinking: str | None) -> dict[str, Any]:
    """Return the fields of a message, or of a delta of one, that nobody reads; nulls left out."""
    return {
        name: value
        for name, value in message.items()
        if value is not None and name not in MESSAGE_FIELDS
        # Thinking that is no text is no thinking that the library can read.
        if not (name in THINKING_FIELDS | {thinking} and isinstance(value, str))
    }


def unknown_call_fields(call: Any) -> dict[str, Any]:
    """Return the unknown fields of a call as `{"call": {...}, "function": {...}}`, or {}."""
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return _unknown(call, function)


def _unknown(call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "call": {n: v for n, v in call.items() if v is not None and n not in CALL_FIELDS},
        "function": {
            n: v for n, v in function.items() if v is not None and n not in FUNCTION_FIELDS
        },
    }
    return {place: fields for place, fields in found.items() if fields}


def plain_calls(calls: Any) -> list[dict[str, Any]] | None:
    """Return the calls of a message in the protocol's form: texts where it wants texts.

    Arguments that are no text become the JSON text of what they are, a missing name or id "".
    """
    if not isinstance(calls, list):
        return None
    return [_plain_call(call if isinstance(call, dict) else {}) for call in calls]


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(custom := call.get("custom"), dict):
        name, arguments = custom.get("name"), custom.get("input")
    return {
        "id": _text(call.get("id")),
        "type": "function",
        "function": {"name": _text(name), "arguments": argument_text(arguments)},
    }


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def argument_text(arguments: Any) -> str:
    """Return arguments as the text that the protocol wants them to be."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


@dataclass
class CallDraft:
    """One call while it is written: its place, and what has come of it."""

    position: int
    ident: str = ""
    name: str = ""
    arguments: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """What one delta adds to a call. A call's first piece has a name, be it empty."""

    name: str | None
    arguments: str | None


class CallDrafts:
    """Puts the calls of a stream together from their deltas.

    Deltas of one `index` belong to one call, except where a server gives every call the same
    index: a name with another id, or after arguments that are whole, begins another call. A name
    that is said again with every delta counts once.
    """

    def __init__(self) -> None:
        self._current: dict[int | None, CallDraft] = {}
        self._count = 0

    def add(self, delta: Any) -> tuple[CallDraft, Piece]:
        """Return the draft that `delta` (of the SDK, loosely read) belongs to, and what it adds."""
        function = delta.function
        ident = _text(delta.id)
        name = _text(getattr(function, "name", None))
        raw = getattr(function, "arguments", None)
        arguments = None if raw is None else argument_text(raw)
        index = delta.index if isinstance(delta.index, int) else None
        draft = self._current.get(index)
        fresh = draft is None or _begins_another(draft, ident, name, arguments)
        if draft is None or fresh:
            draft = CallDraft(self._count)
            self._current[index] = draft
            self._count += 1
        if draft.arguments or name == draft.name:
            name = ""  # said again
        draft.ident = draft.ident or ident
        draft.name += name
        draft.arguments += arguments or ""
        join_fields(draft.fields, _unknown(delta.model_extra or {}, _extra(function)))
        return draft, Piece(name if fresh or name else None, arguments)


def _extra(function: Any) -> Mapping[str, Any]:
    return getattr(function, "model_extra", None) or {}


def _begins_another(draft: CallDraft, ident: str, name: str, arguments: str | None) -> bool:
    if not name:
        return False
    if ident and draft.ident and ident != draft.ident:
        return True
    return bool(arguments and draft.arguments) and _is_whole(draft.arguments)


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


def join_fields(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a delta's unknown fields to what came before, as the SDK joins what it knows.

    Texts continue, objects are joined by key, lists grow (their items joined where both name the
    same `index`); anything else is replaced.
    """
    for name, value in more.items():
        have = into.get(name)
        if isinstance(have, str) and isinstance(value, str) and name not in WHOLE:
            into[name] = have + value
        elif isinstance(have, dict) and isinstance(value, dict):
            join_fields(have, value)
        elif isinstance(have, list) and isinstance(value, list):
            _join_items(have, value)
        else:
            into[name] = value


def _join_items(have: list[Any], more: list[Any]) -> None:
    for item in more:
        index = item.get("index") if isinstance(item, dict) else None
        known = next(
            (one for one in have if isinstance(one, dict) and one.get("index") == index), None
        )
        if index is not None and known is not None:
            join_fields(known, item)
        else:
            have.append(item)
