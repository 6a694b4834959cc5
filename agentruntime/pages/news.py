"""The events of a thread in words, for the log under a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from agentruntime.models import Event
from agentruntime.pages.calls import masked, shown

LONGEST = 140


class News(NamedTuple):
    """One event: its number, when, what, and a few words about it."""

    seq: int
    at: datetime
    type: str
    words: str


def news_of(events: Iterable[Event]) -> list[News]:
    """Return events as lines of a log."""
    return [News(one.seq, one.at, one.type, _words(one.type, masked(one.data))) for one in events]


def _words(kind: str, data: dict[str, Any]) -> str:
    if kind == "message.added":
        asked = ", ".join(call["name"] for call in data.get("tool_calls", []))
        said = data.get("content", "") + (f" (asks for {asked})" if asked else "")
        return _cut(f"{data.get('role', '')}: {said}")
    if kind in ("run.started", "run.resumed"):
        return "taken over from a worker that is gone" if data.get("recovered") else ""
    if kind == "run.interrupted":
        return _cut("; ".join(one.get("message", "") for one in data.get("interrupts", [])))
    error = data.get("error")
    parts = [data.get("tool") or data.get("node") or ""]
    parts += [str(data[name]) for name in ("title", "verdict", "by", "reason") if data.get(name)]
    if isinstance(error, dict):
        parts.append(str(error.get("detail", "")))
    words = ", ".join(str(part) for part in parts if part)
    told = {name: value for name, value in data.items() if value is not None}
    return _cut(words or (shown(told) if told else ""))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
