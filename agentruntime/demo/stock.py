"""An agent whose tools are an MCP server's: looking is free, ordering needs a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agentruntime.graph import Message, StateGraph, ToolCall, create_agent
from agentruntime.mcp import mcp_tools

warehouse = mcp_tools(
    "stock",
    command=[sys.executable, "-m", "agentruntime.demo.stock_server"],
    approvals={"in_stock": False},
    effects={"in_stock": "repeatable"},
)


def clerk(messages: Sequence[Message], tools: Any) -> Message:
    """Look at the shelves, and order ten of what is not there."""
    asked = next(one for one in reversed(messages) if one.role == "user")
    item = asked.content.split()[-1].strip("?.!").lower() if asked.content.split() else "teapot"
    done = messages[messages.index(asked) + 1 :]
    results = [one.content for one in done if one.role == "tool"]
    if not results:
        return _call("stock__in_stock", item=item)
    if len(results) == 1 and '"result": 0' in results[0]:
        return _call("stock__reorder", item=item, pieces=10)
    return Message.assistant(f"{item}: {results[-1]}")


def _call(name: str, **arguments: Any) -> Message:
    return Message.assistant(tool_calls=[ToolCall(id=name, name=name, arguments=arguments)])


def stock_desk(model: str) -> StateGraph:
    """Return the agent, on a provider's model where there is one."""
    return create_agent(
        model=model or clerk,
        tools=[warehouse],
        instructions="You look after a small shop's stock. Reorder ten of what has run out.",
    )
