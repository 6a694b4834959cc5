"""Agents that wait where a test wants them to, and mark in FAULTS_MARKS when they began.

A mark is one line `NAME PID TIME THREAD`, TIME on the clock that all processes share. The models
decide from the messages.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from agentruntime.graph import (
    ApprovalRule,
    Message,
    ToolCall,
    create_agent,
    register,
    tool,
)


def mark(name: str, thread: str = "") -> None:
    """Note that `name` begins now."""
    line = f"{name} {os.getpid()} {time.monotonic()!r} {thread}\n"
    with open(os.environ["FAULTS_MARKS"], "a") as file:
        file.write(line)


def wait_for_release() -> None:
    """Wait until the file FAULTS_RELEASE is there."""
    while not os.path.exists(os.environ["FAULTS_RELEASE"]):
        time.sleep(0.02)


def asks(*names: str) -> Any:
    """A model that asks for these tools, one per turn, and then answers."""

    def model(messages: Sequence[Message], tools: Any) -> Message:
        since = max(n for n, one in enumerate(messages) if one.role == "user")
        done = sum(one.role == "tool" for one in messages[since:])
        if done < len(names):
            return Message.assistant(
                "", tool_calls=[ToolCall(id=f"call_{done}", name=names[done], arguments={})]
            )
        return Message.assistant(" ".join(one.content for one in messages[since:] if one.content))

    return model


@tool
def quick(ctx: Any) -> str:
    """Return at once."""
    mark("quick", ctx.thread_id)
    return "done"


@tool
def slow(ctx: Any) -> str:
    """Wait for the test."""
    mark("slow", ctx.thread_id)
    wait_for_release()
    return "done"


@tool(effect="once")
def slow_once(ctx: Any) -> str:
    """Wait for the test."""
    mark("slow_once", ctx.thread_id)
    wait_for_release()
    return "done"


@tool(effect="once", approval=ApprovalRule(title="Go"))
def gated(ctx: Any) -> str:
    """Run after a yes."""
    mark("gated", ctx.thread_id)
    return "done"


async def slow_model(messages: Sequence[Message], tools: Any) -> Message:
    """A model that takes its time."""
    if messages[-1].role == "user":
        mark("model", "")
        while not os.path.exists(os.environ["FAULTS_RELEASE"]):
            await asyncio.sleep(0.02)
    return Message.assistant("an answer, at last")


register("fault-quick", create_agent(model=asks("quick"), tools=[quick]))
register("fault-slow", create_agent(model=asks("quick", "slow", "quick"), tools=[quick, slow]))
register("fault-slow-once", create_agent(model=asks("slow_once"), tools=[slow_once]))
register("fault-gated", create_agent(model=asks("gated"), tools=[gated]))
register("fault-model", create_agent(model=slow_model, tools=[quick]))
