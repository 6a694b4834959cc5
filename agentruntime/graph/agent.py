"""The usual agent: a model that may call tools, and the tools, in turns until it only answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentruntime.graph.context import Context
from agentruntime.graph.definition import END, START, StateGraph
from agentruntime.graph.messages import Message
from agentruntime.graph.output import StructuredOutput
from agentruntime.graph.state import State
from agentruntime.graph.summary import Summarize
from agentruntime.graph.tool_node import ToolNode
from agentruntime.graph.tools import Tool
from agentruntime.graph.trimming import ContextPolicy

Model = str | Callable[[Sequence[Message], Sequence[Tool]], Any]


def create_agent(
    *,
    model: Model,
    tools: Iterable[Any] = (),
    instructions: str = "",
    state: type[State] = State,
    context: ContextPolicy | Summarize | None = None,
    output: Any = None,
    output_attempts: int = 3,
) -> StateGraph:
    """Return a graph of two nodes, `model` and `tools` (one, where there are no tools).

    `model` is `"provider:name"`, or a callable `(messages, tools) -> Message`, sync or async.
    `instructions` are put before the conversation at every call and are not stored. `context`
    says what of a long conversation the model is shown: `KeepMessages(20)`, `KeepTokens(8000)`, a
    function of the messages, or `Summarize(8000)`, for which one more node, `summary`, asks a model
    to tell the older messages in short, kept in the state field of that name. With `output`, a type
    that pydantic knows, the agent ends with a value of it in the state field `output`: the model
    gives it by calling the tool `answer`, or as JSON text, which one more node, `output`, reads;
    what does not fit is asked for again, at most `output_attempts` times a turn, and then the run
    fails with `OutputInvalid`.
    """
    wanted = None if output is None else StructuredOutput(output, output_attempts)
    node = ToolNode([*tools, *([wanted.tool()] if wanted else [])])
    kind = wanted.state(state) if wanted else state
    summary = context if isinstance(context, Summarize) else None
    graph = StateGraph(summary.state(kind) if summary else kind)
    prompt = Prompt(instructions, context, wanted)
    graph.add_node(
        "model",
        _asking(
            model,
            lambda state: prompt.messages(state),
            lambda: list(node.tools.values()),  # a source may learn of more
            prompt.result,
        ),
    )
    if summary is not None:
        asking = _asking(
            summary.model or model, summary.question, list, summary.result, is_told=False
        )
        graph.add_node("summary", asking)
        graph.add_edge("summary", "model")
    _lead_to_model(graph, START, summary)
    if not node.tools and not node.sources:
        return graph.add_edge("model", END)
    graph.add_node("tools", node)
    if wanted is None:
        graph.add_conditional_edges("model", _wants_tools, {True: "tools", False: END})
        return _lead_to_model(graph, "tools", summary)
    graph.add_node("output", wanted.read_text)
    graph.add_conditional_edges("model", _wants_tools, {True: "tools", False: "output"})
    for source in ("tools", "output"):
        _lead_to_model(graph, source, summary, unless=_has_output)
    return graph


def _lead_to_model(
    graph: StateGraph,
    source: str,
    summary: Summarize | None,
    unless: Callable[[State], bool] | None = None,
) -> StateGraph:
    """Go on from `source` at the model, by way of a summary where one is due; or end."""
    if summary is None and unless is None:
        return graph.add_edge(source, "model")

    def onward(state: State) -> str:
        if unless is not None and unless(state):
            return END
        return "summary" if summary is not None and summary.is_due(state) else "model"

    targets = ["model", *(["summary"] if summary else []), *([END] if unless else [])]
    return graph.add_conditional_edges(source, onward, targets)


def _wants_tools(state: State) -> bool:
    return bool(state.messages and state.messages[-1].tool_calls)


def _has_output(state: Any) -> bool:
    return state.output is not None


class Prompt:
    """What a model is asked, from the state of the thread, and what its answer means for it."""

    def __init__(
        self,
        instructions: str,
        context: ContextPolicy | Summarize | None,
        output: StructuredOutput | None,
    ) -> None:
        self.system = [Message.system(instructions)] if instructions else []
        self.context, self.output = context, output

    def messages(self, state: State) -> list[Message]:
        shown = self._shown(state)
        if self.output is None:
            return [*self.system, *shown]
        self.output.check_attempts(state.messages)
        return [*self.system, *shown, *self.output.reminder(state.messages)]

    def _shown(self, state: State) -> list[Message]:
        if isinstance(self.context, Summarize):
            return self.context.shown(state)
        return state.messages if self.context is None else self.context(state.messages)

    def result(self, state: State, answer: Any) -> Any:
        # The output of an earlier turn is not this one's.
        return answer if self.output is None else {"messages": answer, "output": None}


def _asking(
    model: Model,
    prompt: Callable[[Any], list[Message]],
    tools_now: Callable[[], list[Tool]],
    result: Callable[[Any, Any], Any],
    *,
    is_told: bool = True,
) -> Callable[..., Any]:
    """Return the node that asks `model` what `prompt(state)` says and takes its answer in."""
    if isinstance(model, str):

        async def ask_provider(state: State, ctx: Context) -> Any:
            shown, tools = prompt(state), tools_now()
            return result(state, await ctx.complete(model, shown, tools, is_told=is_told))

        return ask_provider

    if inspect.iscoroutinefunction(model) or inspect.iscoroutinefunction(
        getattr(model, "__call__", None)  # noqa: B004 - an object whose call is async
    ):

        async def ask_async(state: State, ctx: Context) -> Any:
            shown, tools = prompt(state), tools_now()
            async with ctx.model_call(shown, tools) as call:
                return result(state, call.answered(await model(shown, tools)))

        return ask_async

    def ask(state: State, ctx: Context) -> Any:
        shown, tools = prompt(state), tools_now()
        with ctx.model_call(shown, tools) as call:
            return result(state, call.answered(model(shown, tools)))

    return ask
