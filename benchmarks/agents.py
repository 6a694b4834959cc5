"""The graphs of the benchmarks, found by the runtime where `benchmarks` is an installed app."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from django.conf import settings

import benchmarks.faults_agents  # noqa: F401 - registers its own
from agentruntime.graph import (
    END,
    START,
    Context,
    Message,
    State,
    StateGraph,
    Tool,
    ToolCall,
    create_agent,
    register,
    tool,
)
from benchmarks.marks import mark
from benchmarks.retail_agents import register_retail
from benchmarks.text import text


class Count(State):
    """A counter, the steps left, the size of the messages, and what makes it about 1 kB."""

    counter: Annotated[int, operator.add] = 0
    left: int = 1
    size: int = 12
    pad: str = "." * 950


def count(state: Count, ctx: Context) -> dict[str, Any]:
    """One step: one message, one more on the counter."""
    mark(ctx.thread_id)
    message = Message.assistant(text(state.size))
    return {"messages": [message], "counter": 1, "left": state.left - 1}


def chain() -> StateGraph:
    """A node that is taken `left` times in a row."""
    graph = StateGraph(Count)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges(
        "count", lambda state: "count" if state.left else END, {"count": "count", END: END}
    )
    return graph


class Wait(State):
    """How long a run waits, in seconds."""

    seconds: float = 2.0


async def wait(state: Wait) -> Message:
    """What a slow model looks like."""
    await asyncio.sleep(state.seconds)
    return Message.assistant("done")


def waiter() -> StateGraph:
    """One node that waits."""
    graph = StateGraph(Wait)
    graph.add_node("wait", wait)
    graph.add_edge(START, "wait")
    graph.add_edge("wait", END)
    return graph


@tool
async def sleep_async(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "ok"


@tool
def sleep_sync(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "ok"


@tool(effect="once", approval=True)
def charge(order: str, ctx: Context) -> str:
    """Charge, when a person agrees."""
    mark(ctx.thread_id)
    return "charged"


def ask_for_sleep(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Asks for parallel tools as the user says (thread, number, seconds, mode), then answers."""
    thread, number, seconds, mode = messages[0].content.split("/")
    mark(thread)
    if messages[-1].role == "tool":
        return Message.assistant("done")
    given = {"seconds": float(seconds)}
    calls = [
        ToolCall(id=f"c{n}", name=f"sleep_{mode}", arguments=given) for n in range(int(number))
    ]
    return Message.assistant("one moment", tool_calls=calls)


def ask_for_charge(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Asks for the charge, then answers."""
    if messages[-1].role == "tool":
        return Message.assistant("done")
    call = ToolCall(id="c0", name="charge", arguments={"order": "1"})
    return Message.assistant("one moment", tool_calls=[call])


register("bench_chain", chain())
register("bench_wait", waiter())
register("bench_tools", create_agent(model=ask_for_sleep, tools=[sleep_async, sleep_sync]))
register("bench_gated", create_agent(model=ask_for_charge, tools=[charge]))
if settings.RETAIL_DATA:
    register_retail(Path(settings.RETAIL_DATA), Path(settings.RETAIL_JOURNAL))
