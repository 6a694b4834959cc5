"""The one gate for JSON: what may be stored, its canonical form, its digest.

A value passes if PostgreSQL's jsonb, SQLite and every JSON reader take it and give it back
unchanged. Sources of the limits: jsonb refuses NUL, lone surrogates and NaN; Python's reader stops
near 1,000 levels.
"""

from __future__ import annotations

import hashlib
import json
import math
from decimal import Decimal
from typing import Any

MAX_DEPTH = 64
MAX_BYTES = 1_048_576
MAX_INTEGER_DIGITS = 400
MAX_KEYS = 10_000


class NotJson(ValueError):
    """The value cannot be stored as JSON; `path` names the place, `reason` what is wrong."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


def check_json(value: Any, *, path: str = "$", max_bytes: int = MAX_BYTES) -> None:
    """Raise `NotJson` unless `value` is plain JSON that every store gives back unchanged."""
    size = _check(value, path, 0)
    if size > max_bytes:
        raise NotJson(path, f"about {size:,} bytes are more than the {max_bytes:,} allowed")


def _check(value: Any, path: str, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise NotJson(path, f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return check_text(value, path)
    if value is None or isinstance(value, bool):
        return 5
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_DIGITS * 4:
            raise NotJson(path, "the number is too long")
        return 8
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(path, f"{value} is not a JSON number")
        return 16
    if isinstance(value, list):
        return 2 + sum(_check(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value))
    if isinstance(value, dict):
        return 2 + sum(_check_item(key, item, path, depth) for key, item in value.items())
    raise NotJson(path, f"{type(value).__name__} is not a JSON type")


def _check_item(key: Any, item: Any, path: str, depth: int) -> int:
    if not isinstance(key, str):
        raise NotJson(path, f"the key {key!r} is no text")
    return check_text(key, path) + _check(item, f"{path}.{key}", depth + 1)


def check_text(text: str, path: str = "$") -> int:
    """Return the size of `text` in bytes of UTF-8; raise `NotJson` for NUL or a lone surrogate."""
    if "\x00" in text:
        raise NotJson(path, "the text has a NUL character")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise NotJson(path, "the text has a lone surrogate, which is no character") from None


def read_json(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read JSON text strictly: no duplicate keys, NaN, infinities, NUL, lone surrogates, bombs.

    Raises `NotJson` with the path of what is wrong. The reader may be lenient, as long as it loses
    nothing: objects come as their pairs, and what is no number as a mark in its place.
    """
    if len(text) > max_bytes:
        raise NotJson("$", f"{len(text):,} bytes are more than the {max_bytes:,} allowed")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_constant=_NoNumber,
            parse_int=_integer,
            parse_float=_decimal,
        )
    except UnicodeDecodeError:
        raise NotJson("$", "the text is no UTF-8") from None
    except RecursionError:
        raise NotJson("$", f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise NotJson("$", f"not JSON ({error})") from None
    found = _plain(value, "$", 0)
    check_json(found, max_bytes=max_bytes)
    return found


class _Pairs(list[Any]):
    """An object as it was read, with the keys that stand twice."""


class _NoNumber(str):
    """What stands where a number should: `NaN`, an infinity, or far too many digits."""


def _integer(text: str) -> Any:
    return int(text) if len(text) <= MAX_INTEGER_DIGITS else _NoNumber("the number is too long")


def _decimal(text: str) -> Any:
    value = float(text)
    if math.isfinite(value) and Decimal(text) != Decimal(repr(value)):
        return _NoNumber("the number has more digits than are kept; send it as text")
    return value


def _plain(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, _NoNumber):
        raise NotJson(path, value if " " in value else f"{value} is not a JSON number")
    if not isinstance(value, list):
        return value
    if depth > MAX_DEPTH:
        raise NotJson(path[:200], f"nested more than {MAX_DEPTH} levels deep")
    if not isinstance(value, _Pairs):
        return [_plain(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
    if len(value) > MAX_KEYS:
        raise NotJson(path, f"{len(value):,} keys are more than the {MAX_KEYS:,} allowed")
    found: dict[str, Any] = {}
    for key, item in value:
        if key in found:
            raise NotJson(f"{path}.{key[:80]}", "the key stands twice in one object")
        found[key] = _plain(item, f"{path}.{key[:80]}", depth + 1)
    return found


def canonical_json(value: Any) -> str:
    """Return `value` as the one text that equal values share: sorted keys, no spaces."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
