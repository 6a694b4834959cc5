"""The arguments of a call between the text that a provider sends and the value that is stored."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from agentruntime.graph.json_values import (
    NotJson,
    canonical_json,
    check_json,
    check_text,
    read_json,
)

UNREADABLE = "unreadable_arguments"


def read_call_arguments(raw: Any) -> tuple[Any, str]:
    """Return what is stored as a call's arguments, and the text to send back ("": its own form).

    An object that comes back unchanged is stored as one. Everything else is kept as the text that
    came (None as ""): blank, `null`, `[]`, broken JSON, a key that stands twice, a number that a
    float would change. The tool's validation then tells the model what is wrong with it.
    """
    if raw is None:
        return "", ""
    if not isinstance(raw, str):
        return _read_value(raw)
    try:
        found = read_json(raw)
        json.loads(raw, parse_float=_exact)
    except (ValueError, RecursionError):
        return _storable_text(raw), ""
    if not isinstance(found, dict):
        return _storable_text(raw), ""
    return found, "" if raw == canonical_json(found) else raw


def _read_value(raw: Any) -> tuple[Any, str]:
    text = json.dumps(raw, ensure_ascii=False, default=str)
    try:
        check_json(raw)
    except NotJson:
        return _storable_text(text), ""
    if not isinstance(raw, dict):
        return text, ""
    # The order of the keys as they came: a store may not keep it.
    return raw, "" if text == canonical_json(raw) else text


def _exact(text: str) -> float:
    number = float(text)
    try:
        if Decimal(text) == Decimal(repr(number)):
            return number
    except InvalidOperation:  # infinite
        pass
    raise ValueError(f"{text[:40]} has more digits than a float keeps")


def _storable_text(text: str) -> str:
    # Text that no store takes is kept in escaped form: a JSON text, so never an object that
    # could pass for what the model sent.
    try:
        check_text(text)
    except NotJson:
        return json.dumps(text)
    return text


def arguments_to_send(arguments: Any, text: str) -> str:
    """Return the arguments as the JSON object, as text, that is sent back to a provider.

    `text` is what `read_call_arguments` gave; it counts only if it still says the same. What is no
    object is sent inside of one: servers that render calls into a prompt refuse anything else.
    """
    if isinstance(arguments, dict):
        return text if text and _says(text, arguments) else canonical_json(arguments)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    return json.dumps({UNREADABLE: arguments}, ensure_ascii=False)


def _says(text: str, arguments: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(text) == arguments)
    except ValueError:
        return False
