"""The usual agent: a model that may call tools, and the tools, in turns until it only answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentruntime.graph.context import Context
from agentruntime.graph.definition import END, START, StateGraph, ToolNode
from agentruntime.graph.messages import Message
from agentruntime.graph.output import StructuredOutput
from agentruntime.graph.state import State
from agentruntime.graph.tools import Tool
from agentruntime.graph.trimming import ContextPolicy

Model = str | Callable[[Sequence[Message], Sequence[Tool]], Any]


def create_agent(
    *,
    model: Model,
    tools: Iterable[Any] = (),
    instructions: str = "",
    state: type[State] = State,
    context: ContextPolicy | None = None,
    output: Any = None,
    output_attempts: int = 3,
) -> StateGraph:
    """Return a graph of two nodes, `model` and `tools` (one, where there are no tools).

    `model` is `"provider:name"`, or a callable `(messages, tools) -> Message`, sync or async.
    `instructions` are put before the conversation at every call and are not stored. `context`
    says what of a long conversation the model is shown: `KeepMessages(20)`, `KeepTokens(8000)`, or
    a function of the messages. With `output`, a type that pydantic knows, the agent ends with a
    value of it in the state field `output`: the model gives it by calling the tool `answer`, or as
    JSON text, which a third node `output` reads; what does not fit is asked for again, at most
    `output_attempts` times a turn, and then the run fails with `OutputInvalid`.
    """
    wanted = None if output is None else StructuredOutput(output, output_attempts)
    node = ToolNode([*tools, *([wanted.tool()] if wanted else [])])
    graph = StateGraph(wanted.state(state) if wanted else state)
    graph.add_node("model", _model_node(model, node, Prompt(instructions, context, wanted)))
    graph.add_edge(START, "model")
    if not node.tools and not node.sources:
        return graph.add_edge("model", END)
    graph.add_node("tools", node)
    if wanted is None:
        graph.add_conditional_edges("model", _wants_tools, {True: "tools", False: END})
        return graph.add_edge("tools", "model")
    graph.add_node("output", wanted.read_text)
    graph.add_conditional_edges("model", _wants_tools, {True: "tools", False: "output"})
    for source in ("tools", "output"):
        graph.add_conditional_edges(source, _has_output, {True: END, False: "model"})
    return graph


def _wants_tools(state: State) -> bool:
    return bool(state.messages and state.messages[-1].tool_calls)


def _has_output(state: Any) -> bool:
    return state.output is not None


class Prompt:
    """What a model is asked, from the state of the thread, and what its answer means for it."""

    def __init__(
        self, instructions: str, context: ContextPolicy | None, output: StructuredOutput | None
    ) -> None:
        self.system = [Message.system(instructions)] if instructions else []
        self.context, self.output = context, output

    def messages(self, state: State) -> list[Message]:
        shown = state.messages if self.context is None else self.context(state.messages)
        if self.output is None:
            return [*self.system, *shown]
        self.output.check_attempts(state.messages)
        return [*self.system, *shown, *self.output.reminder(state.messages)]

    def result(self, answer: Any) -> Any:
        # The output of an earlier turn is not this one's.
        return answer if self.output is None else {"messages": answer, "output": None}


def _model_node(model: Model, node: ToolNode, prompt: Prompt) -> Callable[..., Any]:
    if isinstance(model, str):

        async def ask_provider(state: State, ctx: Context) -> Any:
            tools = list(node.tools.values())
            return prompt.result(await ctx.complete(model, prompt.messages(state), tools))

        return ask_provider

    if inspect.iscoroutinefunction(model) or inspect.iscoroutinefunction(
        getattr(model, "__call__", None)  # noqa: B004 - an object whose call is async
    ):

        async def ask_async(state: State, ctx: Context) -> Any:
            shown, tools = prompt.messages(state), list(node.tools.values())
            async with ctx.model_call(shown, tools) as call:
                return prompt.result(call.answered(await model(shown, tools)))

        return ask_async

    def ask(state: State, ctx: Context) -> Any:
        shown, tools = prompt.messages(state), list(node.tools.values())
        with ctx.model_call(shown, tools) as call:
            return prompt.result(call.answered(model(shown, tools)))

    return ask
