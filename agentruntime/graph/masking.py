"""Hiding what must not be shown: the same way on every exit, at every depth."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

MASK = "••••••"


def mask(value: Any, secret_fields: Iterable[str]) -> Any:
    """Return JSON-like `value` with every field replaced whose name says that it is secret.

    A name counts if one of `secret_fields` is a whole word of it: `access_token`, `apiKey`.
    """
    return _mask(value, frozenset(secret_fields))


def _mask(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if _is_secret(str(key), names) else _mask(item, names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mask(item, names) for item in value]
    return value


@lru_cache(maxsize=4096)
def _is_secret(key: str, names: frozenset[str]) -> bool:
    words = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", key)]
    spans = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return not spans.isdisjoint(_squeeze(name) for name in names)


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
