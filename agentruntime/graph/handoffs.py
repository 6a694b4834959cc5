"""Several agents: one hands the conversation over to another, or uses it as a tool."""

from __future__ import annotations

from typing import Any

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph.definition import END, START, StateGraph
from agentruntime.graph.state import State
from agentruntime.graph.tools import Tool, ToolResult, as_tool


class TeamState(State):
    """The state of a team: `speaker` is the agent that a new message goes to."""

    speaker: str = ""


def handoff(to: str, description: str = "", *, name: str = "", **options: Any) -> Tool:
    """Return a tool by which a model hands the conversation over to the node or agent `to`.

    The call gets its result, and then the run goes on at `to`, in the same thread with the same
    messages. `to` is looked up around the agent that calls, then further out. Of several handoffs
    of one message the first counts. `options` are those of `tool`, `approval` among them. Where
    the state has a field `speaker`, it is set to `to`.
    """

    def hand_over(state: State) -> ToolResult:
        update = {"speaker": to} if "speaker" in type(state).model_fields else {}
        return ToolResult(f"The conversation goes on with {to!r}.", update=update)

    description = description or f"Hand the conversation over to {to}."
    name = name or f"hand_over_to_{to}"
    return as_tool(hand_over, name=name, description=description, handoff=to, **options)


def agent_tool(agent: StateGraph, name: str, description: str, **options: Any) -> Tool:
    """Return a tool that asks another agent: the call's result is what it says in the end.

    The agent has a conversation and a state of its own, which begins with the argument `message`
    and is gone when it has answered. Each of its steps is durable by itself; what it asks, and what
    its tools need an approval for, are questions of the outer run. Where it ends with a structured
    answer (a state field `output`), that is the result. `options` are those of `tool`; there is no
    timeout but those of the agent's own nodes and tools.
    """

    def ask(message: str) -> str:
        raise RuntimeError(f"{name} is an agent: it works only inside a run.")

    given = {"timeout": 0, **options}
    return as_tool(ask, name=name, description=description, agent=agent, **given)


def team(**agents: StateGraph) -> StateGraph:
    """Return a graph of several agents that hand over to each other by name.

    A new conversation begins with the first one; a later message goes to whoever spoke last. They
    share the messages; what an agent's state has beside them is its own, as in any subgraph.
    """
    if not agents:
        raise InvalidGraph(graph="", problem="a team has at least one agent")
    first = next(iter(agents))
    graph = StateGraph(TeamState)

    def speaker(state: Any) -> str:
        return state.speaker if state.speaker in agents else first

    for name, agent in agents.items():
        graph.add_node(name, agent)
        graph.add_edge(name, END)
    return graph.add_conditional_edges(START, speaker, list(agents))
