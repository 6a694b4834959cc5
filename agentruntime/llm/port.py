"""The port: what the runtime asks of a model, and what it hears meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentruntime.graph.messages import Message

OnDelta = Callable[[str], Any]
"""Told each piece of the answer's text as the model writes it; may be async. It cannot fail the
call: what it raises is logged."""


@dataclass(frozen=True)
class Retry:
    """Told before a model is asked again: text that was told by deltas so far is void.

    `attempt` is the number of the request that failed, `code` its error, `wait` the seconds until
    the next one, `model` who is asked next.
    """

    attempt: int
    code: str
    wait: float
    model: str


OnRetry = Callable[[Retry], Any]


class ModelClient(Protocol):
    """One model, or a chain of them, that turns a conversation into its next message."""

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any],
        *,
        on_delta: OnDelta | None = None,
        on_retry: OnRetry | None = None,
        deadline: float | None = None,
    ) -> Message:
        """Return the answer as an assistant message. Raises `ModelError`."""

    async def count(self, messages: Sequence[Message], tools: Sequence[Any]) -> int:
        """Return how many tokens the conversation takes; an estimate where nobody counts."""
