"""The usual agent: a model that may call tools, and the tools, in turns until it only answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentruntime.graph.context import Context
from agentruntime.graph.definition import END, START, StateGraph, ToolNode
from agentruntime.graph.messages import Message
from agentruntime.graph.state import State
from agentruntime.graph.tools import Tool

Model = str | Callable[[Sequence[Message], Sequence[Tool]], Any]


def create_agent(
    *,
    model: Model,
    tools: Iterable[Any] = (),
    instructions: str = "",
    state: type[State] = State,
) -> StateGraph:
    """Return a graph of two nodes, `model` and `tools` (one, where there are no tools).

    `model` is `"provider:name"`, or a callable `(messages, tools) -> Message`, sync or async.
    `instructions` are put before the conversation at every call and are not stored.
    """
    graph = StateGraph(state)
    node = ToolNode(tools)
    offered = list(node.tools.values())
    graph.add_node("model", _model_node(model, offered, instructions))
    graph.add_edge(START, "model")
    if not offered:
        return graph.add_edge("model", END)
    graph.add_node("tools", node)
    graph.add_conditional_edges("model", _wants_tools, {True: "tools", False: END})
    return graph.add_edge("tools", "model")


def _wants_tools(state: State) -> bool:
    return bool(state.messages and state.messages[-1].tool_calls)


def _model_node(model: Model, tools: list[Tool], instructions: str) -> Callable[..., Any]:
    def prompt(state: State) -> list[Message]:
        system = [Message.system(instructions)] if instructions else []
        return system + state.messages

    if isinstance(model, str):

        async def ask_provider(state: State, ctx: Context) -> Message:
            return await ctx.complete(model, prompt(state), tools)

        return ask_provider

    if inspect.iscoroutinefunction(model) or inspect.iscoroutinefunction(
        getattr(model, "__call__", None)  # noqa: B004 - an object whose call is async
    ):

        async def ask_async(state: State) -> Message:
            answer: Message = await model(prompt(state), tools)
            return answer

        return ask_async

    def ask(state: State) -> Message:
        answer: Message = model(prompt(state), tools)
        return answer

    return ask
