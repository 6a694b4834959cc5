"""A graph: nodes, edges between them, and the check that it can run at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentruntime.exceptions import InvalidGraph, InvalidTool, UnknownTarget, UnmatchedRoute
from agentruntime.graph.json_values import digest
from agentruntime.graph.state import State, state_fields
from agentruntime.graph.tools import Tool, as_tool

START = "__start__"
END = "__end__"


@dataclass(frozen=True)
class Command:
    """What a node returns to update the state and to say itself where to go next."""

    update: Mapping[str, Any] = field(default_factory=dict)
    goto: str = ""


class ToolNode:
    """The node that runs the calls of the last assistant message, each by itself."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self.tools: dict[str, Tool] = {}
        for made in map(as_tool, tools):
            if made.name in self.tools:
                raise InvalidTool(tool=made.name, problem="two tools of one node have this name")
            self.tools[made.name] = made


@dataclass(frozen=True)
class Route:
    """A conditional edge: `choose(state)` answers a key of `targets`, or a node's name."""

    choose: Callable[[Any], Any]
    targets: Mapping[Any, str] | None


class StateGraph:
    """Builder and definition of a graph. `register()` checks it and makes it known by name."""

    def __init__(self, state: type[State] = State) -> None:
        self.state = state
        self.name = ""
        self.nodes: dict[str, Any] = {}
        self.edges: dict[str, str] = {}
        self.routes: dict[str, Route] = {}

    def add_node(self, name: str, node: Any) -> StateGraph:
        """Add a node: a function of (state) or (state, ctx), sync or async, or a `ToolNode`."""
        if name in (START, END) or not name or len(name) > 100:
            raise InvalidGraph(graph=self.name, problem=f"{name!r} is no name for a node")
        if name in self.nodes:
            raise InvalidGraph(graph=self.name, problem=f"two nodes are named {name!r}")
        if not isinstance(node, ToolNode) and not callable(node):
            raise InvalidGraph(graph=self.name, problem=f"node {name!r} is no function")
        self.nodes[name] = node
        return self

    def add_edge(self, source: str, target: str) -> StateGraph:
        """Go from `source` to `target`; one edge, or one conditional edge, per node."""
        self._claim_exit(source)
        self.edges[source] = target
        return self

    def add_conditional_edges(
        self, source: str, choose: Callable[[Any], Any], targets: Mapping[Any, str] | None = None
    ) -> StateGraph:
        """Go from `source` where `choose(state)` says: a key of `targets`, or a node's name."""
        self._claim_exit(source)
        self.routes[source] = Route(choose, dict(targets) if targets is not None else None)
        return self

    def _claim_exit(self, source: str) -> None:
        if source in self.edges or source in self.routes:
            raise InvalidGraph(graph=self.name, problem=f"two edges leave {source!r}")

    def check(self) -> None:
        """Raise `InvalidGraph` for unknown targets, unreachable nodes, or no way to `END`."""
        for problem in self._problems():
            raise InvalidGraph(graph=self.name, problem=problem)

    def _problems(self) -> Iterable[str]:
        known = {START, *self.nodes}
        for source in [*self.edges, *self.routes]:
            if source not in known:
                yield f"an edge leaves {source!r}, which is no node"
        if START not in self.edges and START not in self.routes:
            yield "no edge leaves START"
        for source, targets in self._exits().items():
            for target in targets:
                if target not in self.nodes and target != END:
                    yield f"an edge leads from {source!r} to {target!r}, which is no node"
        reached = self._reachable()
        for name in self.nodes:
            if name not in reached:
                yield f"node {name!r} cannot be reached from START"
        if END not in reached:
            yield "no way leads to END"

    def _exits(self) -> dict[str, set[str]]:
        exits = {source: {target} for source, target in self.edges.items()}
        anywhere = {*self.nodes, END}
        for source, route in self.routes.items():
            exits[source] = anywhere if route.targets is None else set(route.targets.values())
        for name, node in self.nodes.items():
            if name not in exits:  # it says itself where to go, with a Command
                exits[name] = anywhere if not isinstance(node, ToolNode) else set()
        return exits

    def _reachable(self) -> set[str]:
        exits, reached, ahead = self._exits(), set(), [START]
        while ahead:
            for target in exits.get(ahead.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    ahead.append(target)
        return reached

    def after(self, name: str, state: State, goto: str = "") -> str:
        """Return the node that follows `name`. Raises `UnmatchedRoute` or `UnknownTarget`."""
        if goto:
            return self._target(name, goto)
        if name in self.edges:
            return self.edges[name]
        if name not in self.routes:
            raise UnmatchedRoute(node=name, answer=None, known="a Command with goto")
        route = self.routes[name]
        answer = route.choose(state)
        if route.targets is None:
            return self._target(name, answer)
        try:
            return route.targets[answer]
        except (KeyError, TypeError):
            known = ", ".join(repr(key) for key in route.targets)
            raise UnmatchedRoute(node=name, answer=answer, known=known) from None

    def _target(self, name: str, target: Any) -> str:
        if target != END and (not isinstance(target, str) or target not in self.nodes):
            raise UnknownTarget(node=name, target=target, known=", ".join([*self.nodes, END]))
        return str(target)

    @property
    def tools(self) -> dict[str, Tool]:
        """All tools of the graph's tool nodes by name."""
        nodes = [node for node in self.nodes.values() if isinstance(node, ToolNode)]
        return {name: made for node in nodes for name, made in node.tools.items()}

    def fingerprint(self) -> str:
        """A digest of the shape: nodes, edges, state fields, tools. Another shape, another
        digest.
        """
        return digest(
            {
                "nodes": sorted(self.nodes),
                "edges": sorted(self.edges.items()),
                "routes": sorted(self.routes),
                "state": sorted(state_fields(self.state)),
                "tools": sorted(made.fingerprint for made in self.tools.values()),
            }
        )[:16]


def takes_context(node: Callable[..., Any]) -> bool:
    """Say whether a node wants `ctx` as its second parameter."""
    parameters = list(inspect.signature(node).parameters.values())
    return (len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty) or any(
        parameter.name == "ctx" for parameter in parameters
    )
