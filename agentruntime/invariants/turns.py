"""Conversations: each call of a model has one result, in its place, and each result one call."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from agentruntime.graph.messages import Message as MessageValue
from agentruntime.invariants.core import Invariant, Scope, register_invariants
from agentruntime.models import Message


def broken_turns(scope: Scope) -> Iterator[tuple[Any, Any, Any]]:
    """Turns whose calls and results do not pair one to one before the next turn begins."""
    rows = Message.objects.filter(thread__in=scope.threads()).order_by("thread_id", "ordinal")
    for thread_id, messages in groupby(rows.iterator(), key=lambda row: row.thread_id):
        for detail in _broken(row.to_value() for row in messages):
            yield thread_id, None, detail


def _broken(messages: Iterator[MessageValue]) -> Iterator[str]:
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            if waiting.pop(message.tool_call_id, None) is None:
                yield f"result {message.id} belongs to no open call"
            continue
        for name in waiting.values():
            yield f"a call of {name} has no result before message {message.id}"
        waiting = {call.id: call.name for call in message.tool_calls}


register_invariants(
    [
        Invariant(
            "calls and results pair",
            "Each call has exactly one result before the next turn, each result one call.",
            check=broken_turns,
        ),
    ]
)
