"""Whether checked arguments still say what was sent: coercion may change a form, not a value."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from agentruntime.graph.json_values import NotJson


def check_lossless(sent: Any, kept: Any, path: str = "$") -> None:
    """Raise `NotJson` where a value was coerced to another one.

    `"5"` for 5 and 5.0 for 5 are other forms of one value; `"yes"` for true, true for 1 are not.
    What `kept` has beyond `sent` are defaults. Texts may take another form (dates do).
    """
    if isinstance(sent, dict) and isinstance(kept, dict):
        for key, item in sent.items():
            if key in kept:
                check_lossless(item, kept[key], f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(kept, list):
        for number, (before, after) in enumerate(zip(sent, kept, strict=False)):
            check_lossless(before, after, f"{path}[{number}]")
    elif not _is_same(sent, kept):
        raise NotJson(path, f"{str(sent)[:40]!r} is not of the type that the tool takes")


def _is_same(sent: Any, kept: Any) -> bool:
    if isinstance(sent, bool) or isinstance(kept, bool):
        return sent is kept
    if sent == kept or (isinstance(sent, str) and isinstance(kept, str)):
        return True
    try:
        return Decimal(str(sent)) == Decimal(str(kept))
    except InvalidOperation:
        return False
