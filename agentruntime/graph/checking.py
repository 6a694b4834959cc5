"""Whether a graph can run at all: said when it is registered, not when a run comes to the place."""

from __future__ import annotations

from collections.abc import Iterable

from agentruntime.exceptions import InvalidGraph, UnjoinableBranches
from agentruntime.graph.definition import END, MAX_NAME, START, StateGraph
from agentruntime.graph.shape import reachable


def check_graph(graph: StateGraph) -> None:
    """Raise `InvalidGraph` for unknown targets, unreachable nodes, branches that do not meet again,
    or no way to `END`.
    """
    for problem in _problems(graph):
        raise InvalidGraph(graph=graph.name, problem=problem)


def _problems(graph: StateGraph) -> Iterable[str]:
    yield from _loose_ends(graph)
    reached = reachable(graph.exits(), [START])
    for name in graph.nodes:
        if name not in reached:
            yield f"node {name!r} cannot be reached from START"
    for name in [*graph.nodes, *graph.ends]:
        if len(name) > MAX_NAME:
            yield f"the name {name!r} is longer than {MAX_NAME} characters"
    if END not in reached:
        yield "no way leads to END"
    yield from _unjoinable(graph)


def _loose_ends(graph: StateGraph) -> Iterable[str]:
    known, exits = {*graph.nodes, *graph.ends}, graph.exits()
    for source in [*graph.edges, *graph.routes]:
        if source not in known and source != START:
            yield f"an edge leaves {source!r}, which is no node"
    for source in [START, *sorted(graph.ends)]:
        if not exits.get(source):
            yield f"no edge leaves {'START' if source == START else source[: -len(END) - 1]!r}"
    for source, targets in exits.items():
        for target in targets - known - {END}:
            yield f"an edge leads from {source!r} to {target!r}, which is no node"


def _unjoinable(graph: StateGraph) -> Iterable[str]:
    for source, targets in graph.edges.items():
        if len(targets) > 1:
            try:
                graph.fork(source, targets)
            except UnjoinableBranches as error:
                yield str(error.facts["problem"])
