"""Which graph and which tool a place means, as the ledger names them."""

from __future__ import annotations

from agentruntime.graph.definition import StateGraph
from agentruntime.graph.tools import Tool


def tool_at(graph: StateGraph, place: str, name: str) -> Tool | None:
    """Return the tool `name` of the tool node at `place`; None if it is gone."""
    inner, node = graph_at(graph, place)
    found = inner.tool_nodes().get(node)
    return None if found is None else found.tools.get(name)


def graph_at(graph: StateGraph, place: str) -> tuple[StateGraph, str]:
    """Return the graph that the node at `place` is in, `graph` or that of an agent among its tools,
    and its name there.
    """
    for holder, node in graph.tool_nodes().items():
        if place.startswith(f"{holder}/") and place not in graph.nodes:
            called, _, inner = place.removeprefix(f"{holder}/").partition("/")
            made = node.tools.get(called)
            if made is not None and isinstance(made.agent, StateGraph):
                return graph_at(made.agent, inner)
    return graph, place
