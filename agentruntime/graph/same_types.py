"""Whether a value that came back equal is of the same types, in all that it holds.

Much is equal that is not the same: a member of a `StrEnum` and its text, numpy's numbers and
Python's, a dict with a default and one without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

PLAIN = frozenset((str, int, float, bool, type(None)))


def lost_type(value: Any, back: Any) -> str:
    """Return what of `value` is of another type in `back`, which equals it; empty if nothing is."""
    pairs = [(value, back)]
    for one, its in pairs:  # it grows meanwhile
        kind = type(one)
        if kind is not type(its):
            if kind is int and type(its) is float:  # a whole number where a float is declared
                continue
            return f"{kind.__name__} would come back as {type(its).__name__}"
        if kind not in PLAIN:
            pairs += _parts(one, its)
    return ""


def _parts(value: Any, back: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        held = zip(value.values(), back.values(), strict=True)
        return [*zip(value, back, strict=True), *held]
    if isinstance(value, list | tuple):
        return zip(value, back, strict=True)
    if isinstance(value, set | frozenset):
        found = {one: one for one in back}
        return [(one, found[one]) for one in value]
    if isinstance(value, BaseModel):
        return [(held, getattr(back, name)) for name, held in value]
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        return [(getattr(value, name), getattr(back, name)) for name in names]
    return ()
