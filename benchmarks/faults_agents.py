"""Agents of which a worker is taken away: they mark that they began, and wait until it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from agentruntime.graph import Context, Message, Tool, ToolCall, create_agent, register, tool
from benchmarks.marks import mark

SECONDS = 120.0


@tool
def hang(ctx: Context) -> str:
    """A plain function that does not come back."""
    mark(ctx.thread_id)
    time.sleep(SECONDS)
    return "at last"


def ask_for_hang(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Asks for the tool."""
    return Message.assistant("one moment", tool_calls=[ToolCall(id="c0", name="hang")])


async def think(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """A model that takes its time; the user's words are the mark."""
    mark(messages[0].content)
    await asyncio.sleep(SECONDS)
    return Message.assistant("at last")


register("bench_hang", create_agent(model=ask_for_hang, tools=[hang]))
register("bench_think", create_agent(model=think, tools=[]))
