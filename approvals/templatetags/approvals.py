"""How templates print what others wrote, and money, and time."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils import timezone

from approvals.figures import in_words
from approvals.visible import LONG, Piece, is_suspicious, pieces, shortened

register = template.Library()


@register.inclusion_tag("admin/approvals/_visible.html")
def visible(value: Any, limit: int = 0) -> dict[str, Any]:
    """Print a value so that nothing in it is hidden; with `limit`, cut with a mark."""
    text = as_text(value)
    shown = shortened(text, limit) if limit else text
    found = pieces(shown)
    return {
        "pieces": found,
        "odd": any(piece.kind == "odd" for piece in found),
        "twin": any(piece.kind == "twin" for piece in found),
        "length": len(text) if len(text) > LONG and not limit else 0,
        "empty": text == "",
    }


@register.filter
def as_text(value: Any) -> str:
    """Return a JSON value as a person reads it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)


@register.filter
def suspicious(value: Any) -> bool:
    """Say whether a value holds characters that hide or pretend."""
    return is_suspicious(as_text(value))


@register.filter
def label_of(name: str) -> str:
    """Return the name of an argument as words."""
    words = str(name).replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else str(name)


@register.filter
def since(moment: datetime | None, form: str = "") -> str:
    """Return how long ago (or in how long) a moment is, in one unit; "short" for narrow columns."""
    if moment is None:
        return ""
    seconds = (timezone.now() - moment).total_seconds()
    number, unit = in_words(abs(seconds)).split()
    told = f"{number} {unit}" if unit != "s" else f"{float(number):.0f} s"
    if form != "short":
        told = _spelled(*told.split())
    return f"{told} ago" if seconds >= 0 else f"in {told}"


def _spelled(number: str, unit: str) -> str:
    word = {"d": "day", "h": "hour", "min": "minute", "s": "second"}[unit]
    return f"{number} {word}" if number == "1" else f"{number} {word}s"


@register.filter
def duration(seconds: float | None) -> str:
    """Return a duration in the unit that a person would use."""
    return in_words(seconds)


@register.filter
def money(amount: Decimal) -> str:
    """Return an amount with two decimals or more, grouped."""
    places = max(2, -int(amount.normalize().as_tuple().exponent))
    return f"{amount:,.{places}f}"


__all__ = ("Piece", "as_text", "label_of", "register", "since", "suspicious", "visible")
