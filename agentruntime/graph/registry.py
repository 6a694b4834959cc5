"""Graphs by name. An app's `agents.py` registers its own; they are found as `admin.py` is."""

from __future__ import annotations

from agentruntime.exceptions import GraphNameTaken, UnknownGraph
from agentruntime.graph.checking import check_graph
from agentruntime.graph.definition import StateGraph
from agentruntime.graph.subgraphs import flatten

_graphs: dict[str, StateGraph] = {}


def register(name: str, graph: StateGraph) -> StateGraph:
    """Check `graph` and make it known as `name`. Raises `InvalidGraph` or `GraphNameTaken`."""
    if _graphs.get(name, graph) is not graph:
        raise GraphNameTaken(graph=name)
    graph.name = name
    flatten(graph)
    check_graph(graph)
    _graphs[name] = graph
    return graph


def get_graph(name: str) -> StateGraph:
    """Return the graph registered as `name`. Raises `UnknownGraph`, which lists what there is."""
    try:
        return _graphs[name]
    except KeyError:
        raise UnknownGraph(graph=name, known=", ".join(sorted(_graphs)) or "none") from None


def graph_names() -> list[str]:
    """Return the names of all registered graphs, sorted."""
    return sorted(_graphs)


def unregister(name: str) -> None:
    """Forget the graph `name`, if it is known. For tests."""
    _graphs.pop(name, None)
