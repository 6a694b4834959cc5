"""Small agents for tests. Their models decide from the messages that they are given, never from a
counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from agentruntime.graph import Message, ToolCall, create_agent, register
from agentruntime.graph.registry import unregister


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    """All calls that were asked for since the last user message."""
    since = max((n for n, one in enumerate(messages) if one.role == "user"), default=0)
    return [call for one in messages[since:] for call in one.tool_calls]


def results_of(messages: Sequence[Message]) -> list[str]:
    """All results since the last user message."""
    since = max((n for n, one in enumerate(messages) if one.role == "user"), default=0)
    return [one.content for one in messages[since:] if one.role == "tool"]


def asks_for(*turns: Sequence[ToolCall]) -> Callable[..., Message]:
    """A model that asks for these calls, turn by turn, and then says what came of them."""

    def model(messages: Sequence[Message], tools: Any) -> Message:
        done = len(calls_of(messages))
        asked = 0
        for turn in turns:
            if done <= asked:
                return Message.assistant("", tool_calls=list(turn))
            asked += len(turn)
        return Message.assistant(" | ".join(results_of(messages)) or "hello")

    return model


def call(name: str, ident: str = "call_1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=ident, name=name, arguments=arguments)


@contextmanager
def registered(graph: Any, name: str = "testing") -> Any:
    """Make a graph known for the length of the block."""
    unregister(name)
    register(name, graph)
    try:
        yield name
    finally:
        unregister(name)


@contextmanager
def agent(tools: Sequence[Any], *turns: Sequence[ToolCall], **options: Any) -> Any:
    """An agent with these tools that asks for these calls."""
    with registered(create_agent(model=asks_for(*turns), tools=list(tools), **options)) as name:
        yield name
