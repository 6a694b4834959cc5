"""Whether checked arguments still say what was sent: coercion may change a form, not a value."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from agentruntime.graph.json_values import NotJson, canonical_json


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


def in_sent_order(sent: Any, kept: Any) -> Any:
    """Return `kept` with its lists in the order of `sent` where they hold the same items.

    A set has no order of its own: each process would write it in another one.
    """
    if isinstance(sent, dict) and isinstance(kept, dict):
        return {
            key: in_sent_order(sent[key], item) if key in sent else item
            for key, item in kept.items()
        }
    if not isinstance(sent, list) or not isinstance(kept, list):
        return kept
    by_form = {_form(item): item for item in kept}
    order = list(dict.fromkeys(map(_form, sent)))
    if len(by_form) == len(kept) == len(order) and by_form.keys() == set(order):
        return [by_form[form] for form in order]
    pairs = [in_sent_order(before, after) for before, after in zip(sent, kept, strict=False)]
    return [*pairs, *kept[len(pairs) :]]


def _form(item: Any) -> Any:
    """Return what the forms of one value have in common, so that it can be looked up."""
    if isinstance(item, dict | list):
        return canonical_json(item)
    if isinstance(item, bool) or item is None:
        return str(item)
    try:
        return Decimal(str(item))
    except InvalidOperation:
        return item


def _is_same(sent: Any, kept: Any) -> bool:
    if isinstance(sent, bool) or isinstance(kept, bool):
        return sent is kept
    if sent == kept or (isinstance(sent, str) and isinstance(kept, str)):
        return True
    try:
        return Decimal(str(sent)) == Decimal(str(kept))
    except InvalidOperation:
        return False
