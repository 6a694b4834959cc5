"""Hiding what must not be shown: the same way on every exit, at every depth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

MASK = "••••••"
READER = json.JSONDecoder()
# A field's name and colon in a text, its value where that is no JSON.
KEY = re.compile(r'"([^"\\]{1,200})"\s{0,20}:\s{0,20}')
VALUE = re.compile(r'"(?:[^"\\]|\\.)*"?|[^,}\]]*', re.DOTALL)


def mask(value: Any, secret_fields: Iterable[str]) -> Any:
    """Return JSON-like `value` with every field replaced whose name says that it is secret.

    A name counts if one of `secret_fields` is a whole word of it: `access_token`, `apiKey`.
    """
    return _mask(value, frozenset(secret_fields))


def mask_text(text: str, secret_fields: Iterable[str]) -> str:
    """Return `text` with the same fields replaced wherever it holds JSON, broken or whole."""
    names = frozenset(secret_fields)
    parts, done = [], 0
    for found in KEY.finditer(text):
        if found.start() < done or not _is_secret(found[1], names):
            continue
        parts += [text[done : found.end()], f'"{MASK}"']
        done = _end_of_value(text, found.end())
    return "".join([*parts, text[done:]])


def _end_of_value(text: str, start: int) -> int:
    with suppress(ValueError, RecursionError):
        return READER.raw_decode(text, start)[1]
    broken = VALUE.match(text, start)
    return broken.end() if broken else start


def _mask(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        masked = {
            key: MASK if _is_secret(str(key), names) else _mask(item, names)
            for key, item in value.items()
        }
        _mask_texts(masked, names)
        return masked
    if isinstance(value, list | tuple):
        return [_mask(item, names) for item in value]
    return value


def _mask_texts(value: dict[str, Any], names: frozenset[str]) -> None:
    """Hide what is secret in the JSON texts of a message: what a tool said, and the arguments of a
    call as its provider wrote them. Any other text is text.
    """
    told: list[tuple[Any, str]] = [(value, "content")] if value.get("role") == "tool" else []
    if "name" in value and "arguments" in value:
        told += [(value, "arguments"), (value.get("extra"), "text")]
    for holder, key in told:
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            holder[key] = mask_text(holder[key], names)


@lru_cache(maxsize=4096)
def _is_secret(key: str, names: frozenset[str]) -> bool:
    words = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", key)]
    spans = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return not spans.isdisjoint(_squeeze(name) for name in names)


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
