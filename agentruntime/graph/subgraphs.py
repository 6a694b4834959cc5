"""Graphs within a graph: the nodes of a subgraph become nodes of the graph around it."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph.checking import check_graph
from agentruntime.graph.definition import END, MAX_NAME, START, Route, StateGraph
from agentruntime.graph.state import State, state_fields


def flatten(graph: StateGraph, around: tuple[StateGraph, ...] = ()) -> None:
    """Put the nodes of all subgraphs in their places, and check the agents that are tools.

    A graph that is flat already stays as it is. Raises `InvalidGraph`, also for one that contains
    itself.
    """
    if graph in around:
        raise InvalidGraph(graph=around[0].name, problem="a graph in it contains itself")
    for name, inner in list(graph.nodes.items()):
        if isinstance(inner, StateGraph):
            flatten(inner, (*around, graph))
            _take_in(graph, name, inner)
    for place, node in graph.nodes.items():
        for made in getattr(node, "tools", {}).values():
            if made.agent is not None:
                flatten(made.agent, (*around, graph))
                _check_agent(graph, f"{place}/{made.name}", made.agent)


def _enter(state: State) -> None:
    """The node that a subgraph is entered by: nothing happens in it."""


def _take_in(graph: StateGraph, name: str, inner: StateGraph) -> None:
    end = f"{name}/{END}"
    tables: tuple[dict[str, Any], ...] = (graph.edges, graph.routes)
    for table in tables:
        if name in table:
            table[end] = table.pop(name)
    graph.nodes[name] = _enter
    graph.nodes |= {f"{name}/{one}": node for one, node in inner.nodes.items()}
    graph.ends |= {end, *(f"{name}/{one}" for one in inner.ends)}
    for source, targets in inner.edges.items():
        graph.edges[_at(name, source)] = [_at(name, one) for one in targets]
    for source, route in inner.routes.items():
        targets_of = route.targets and {key: _at(name, to) for key, to in route.targets.items()}
        graph.routes[_at(name, source)] = Route(route.choose, targets_of)
    shared = set(state_fields(graph.declared))
    graph.state = _joined(graph, name, inner)
    graph.own_fields[name] = set(state_fields(inner.declared)) - shared
    for scope, fields in inner.own_fields.items():
        graph.own_fields[f"{name}/{scope}"] = fields - shared


def _at(name: str, inner: str) -> str:
    """Return the full name of what a subgraph calls `inner`."""
    return name if inner == START else f"{name}/{inner}"


def _joined(graph: StateGraph, name: str, inner: StateGraph) -> type[State]:
    """Return a state that is one of the outer graph and one of the inner graph."""
    ours, theirs = graph.state, inner.state
    if issubclass(ours, theirs):
        return ours
    if issubclass(theirs, ours):
        return theirs
    mine, others = state_fields(ours), state_fields(theirs)
    for field in mine.keys() & others.keys():
        kinds = [one.model_fields[field].annotation for one in (ours, theirs)]
        if kinds[0] != kinds[1] or mine[field].reducer != others[field].reducer:
            problem = f"the state field {field!r} is another one in {name!r}: same name, same field"
            raise InvalidGraph(graph=graph.name, problem=problem)
    try:
        return _merged(ours, theirs)
    except TypeError as error:  # no order of the base classes fits both
        problem = f"the state of {name!r} cannot be joined to its own: {error}"
        raise InvalidGraph(graph=graph.name, problem=problem) from None


def _merged(ours: type[State], theirs: type[State]) -> type[State]:
    make: Any = create_model
    kind: type[State] = make(f"{ours.__name__}With{theirs.__name__}", __base__=(ours, theirs))
    return kind


def _check_agent(graph: StateGraph, place: str, agent: StateGraph) -> None:
    try:
        check_graph(agent)
    except InvalidGraph as error:
        problem = f"in the agent {place!r}: {error.facts['problem']}"
        raise InvalidGraph(graph=graph.name, problem=problem) from None
    for one in agent.nodes:
        if len(f"{place}/{one}") > MAX_NAME:
            problem = f"the name {place}/{one!r} is longer than {MAX_NAME} characters"
            raise InvalidGraph(graph=graph.name, problem=problem)
