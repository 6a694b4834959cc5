"""A graph: its nodes, and what follows what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentruntime.exceptions import (
    InvalidGraph,
    UnjoinableBranches,
    UnknownTarget,
    UnmatchedRoute,
)
from agentruntime.graph.json_values import digest
from agentruntime.graph.shape import join_of
from agentruntime.graph.state import State, state_fields
from agentruntime.graph.tool_node import ToolNode, ToolSource
from agentruntime.graph.tools import Tool

START = "__start__"
END = "__end__"
BRANCHES = "__branches__"
"""What a checkpoint names as its next node while several branches are at work."""
MAX_NAME = 100


@dataclass(frozen=True)
class Send:
    """One branch: `node` works on the state with these fields in place of the thread's own.

    `given` is a dict of fields, or a `State` of its own. It is what the branch sees, no update:
    only what its nodes return is joined to the thread's state.
    """

    node: str
    given: Mapping[str, Any] | State = field(default_factory=dict)


Goto = str | Send | Sequence[str | Send]


@dataclass(frozen=True)
class Command:
    """What a node returns to update the state and to say itself where to go next.

    `goto` is a node's name, or a list of names and `Send`s: each is a branch. Within a subgraph a
    name is looked up there first, then in the graph around it.
    """

    update: Mapping[str, Any] = field(default_factory=dict)
    goto: Goto = ""


@dataclass(frozen=True)
class Route:
    """A conditional edge: `choose(state)` answers a key of `targets`, a node's name, a `Send`, or a
    list of these.
    """

    choose: Callable[[Any], Any]
    targets: Mapping[Any, str] | None


@dataclass(frozen=True)
class Onward:
    """What follows a node: the next node, or `BRANCHES` with the branches and where they end."""

    node: str
    branches: tuple[Send, ...] = ()
    until: str = ""


class StateGraph:
    """Builder and definition of a graph. `register()` checks it and makes it known by name.

    A node may be another graph. When the outer one is registered, the inner one's nodes become its
    own under `name/`: each is an ordinary step of the same thread. Messages are shared, and fields
    that both declare; fields that only the inner graph declares are its own, and back at their
    defaults when it is left.

    Several edges from one node, or a list of names and `Send`s from a conditional edge or a
    `Command`, open branches. They work side by side and end at the nearest node that they all lead
    to, where what they brought is joined in the order of the branches. A conditional edge that may
    answer an empty list names its targets, so that it is known where to go on.
    """

    def __init__(self, state: type[State] = State) -> None:
        self.state = state
        self.declared = state
        self.name = ""
        self.nodes: dict[str, Any] = {}
        self.edges: dict[str, list[str]] = {}
        self.routes: dict[str, Route] = {}
        self.ends: set[str] = set()
        """The ends of subgraphs: `name/__end__`. No nodes; what leaves a subgraph leaves here."""
        self.own_fields: dict[str, set[str]] = {}
        """The state fields that are a subgraph's own, by its name."""

    def add_node(self, name: str, node: Any) -> StateGraph:
        """Add a node: a function of (state) or (state, ctx), sync or async, a `ToolNode`, or
        another graph.
        """
        if name in (START, END, BRANCHES) or not name or len(name) > MAX_NAME or "/" in name:
            raise InvalidGraph(graph=self.name, problem=f"{name!r} is no name for a node")
        if name in self.nodes:
            raise InvalidGraph(graph=self.name, problem=f"two nodes are named {name!r}")
        if not isinstance(node, ToolNode | StateGraph) and not callable(node):
            raise InvalidGraph(graph=self.name, problem=f"node {name!r} is no function")
        self.nodes[name] = node
        return self

    def add_edge(self, source: str, target: str) -> StateGraph:
        """Go from `source` to `target`; several edges from one node open a branch each."""
        if source in self.routes or target in self.edges.get(source, ()):
            raise InvalidGraph(graph=self.name, problem=f"two edges leave {source!r}")
        self.edges.setdefault(source, []).append(target)
        return self

    def add_conditional_edges(
        self,
        source: str,
        choose: Callable[[Any], Any],
        targets: Mapping[Any, str] | Iterable[str] | None = None,
    ) -> StateGraph:
        """Go from `source` where `choose(state)` says: a key of `targets`, a node's name, a `Send`,
        or a list of these. `targets` may be a list of names too.
        """
        if source in self.edges or source in self.routes:
            raise InvalidGraph(graph=self.name, problem=f"two edges leave {source!r}")
        if targets is not None and not isinstance(targets, Mapping):
            targets = {name: name for name in targets}
        self.routes[source] = Route(choose, dict(targets) if targets is not None else None)
        return self

    def exits(self) -> dict[str, set[str]]:
        """Return where each node may lead, as far as its edges say."""
        exits = {source: set(targets) for source, targets in self.edges.items()}
        anywhere = {*self.nodes, END}
        for source, route in self.routes.items():
            exits[source] = anywhere if route.targets is None else set(route.targets.values())
        for name in self.free:
            exits[name] = anywhere
        for name, node in self.nodes.items():
            if isinstance(node, ToolNode):
                handed = {one.handoff for one in node.tools.values() if one.handoff}
                exits[name] = exits.get(name, set()) | {self._found(name, one) for one in handed}
        return {**{end: set() for end in self.ends}, **exits}

    @property
    def free(self) -> set[str]:
        """The nodes that say themselves where to go, with a `Command`."""
        bound = {*self.edges, *self.routes}
        return {
            name
            for name, node in self.nodes.items()
            if name not in bound and not isinstance(node, ToolNode)
        }

    def onward(self, name: str, state: State, goto: Goto = "", *, until: str = "") -> Onward:
        """Return what follows `name`; within a branch, `until` is where it ends.

        Raises `UnmatchedRoute`, `UnknownTarget` or `UnjoinableBranches`.
        """
        targets = self._targets(name, state, goto)
        while len(targets) == 1 and isinstance(alone := targets[0], str):
            if alone not in self.ends or alone == until:
                return Onward(alone)
            targets = self._targets(alone, state, "")
        return self.fork(name, targets)

    def fork(self, name: str, targets: Sequence[str | Send]) -> Onward:
        """Return the branches that `name` opens, and where they meet again. Raises
        `UnjoinableBranches`.
        """
        sends = tuple(one if isinstance(one, Send) else Send(one) for one in targets)
        for one in sends:
            if one.node == END or one.node in self.ends:
                raise UnjoinableBranches(node=name, problem=f"a branch of {name!r} begins at END")
        turns = [one for one in sends if self._goes_on_with_the_turn(one)]
        if len(turns) > 1:
            problem = f"{turns[0].node!r} and {turns[1].node!r} would make the same calls"
            raise UnjoinableBranches(node=name, problem=problem)
        return Onward(BRANCHES, sends, self._join(name, [one.node for one in sends]))

    def _goes_on_with_the_turn(self, send: Send) -> bool:
        has_messages = isinstance(send.given, State) or "messages" in send.given
        return isinstance(self.nodes[send.node], ToolNode) and not has_messages

    def _join(self, name: str, starts: Sequence[str]) -> str:
        ends = (f"{one}/{END}" for one in starts)
        whole = [end if end in self.ends else one for one, end in zip(starts, ends, strict=True)]
        return join_of(name, self.exits(), whole, self.free)

    def _targets(self, name: str, state: State, goto: Goto) -> list[str | Send]:
        if goto:
            return [self._target(name, one) for one in _listed(goto)]
        if name in self.edges:
            return list(self.edges[name])
        if name not in self.routes:
            raise UnmatchedRoute(node=name, answer=None, known="a Command with goto")
        route = self.routes[name]
        answer = route.choose(state)
        if isinstance(answer, list | tuple) and not answer and route.targets:
            return [self._join(name, [one for one in route.targets.values() if one != END])]
        return [self._chosen(name, route, one) for one in _listed(answer)]

    def _chosen(self, name: str, route: Route, answer: Any) -> str | Send:
        if route.targets is None or isinstance(answer, Send):
            return self._target(name, answer)
        try:
            return route.targets[answer]
        except (KeyError, TypeError):
            known = ", ".join(repr(key) for key in route.targets)
            raise UnmatchedRoute(node=name, answer=answer, known=known) from None

    def _target(self, name: str, target: Any) -> str | Send:
        wanted = target.node if isinstance(target, Send) else target
        found = self._found(name, wanted) if isinstance(wanted, str) else ""
        if found not in self.nodes and found not in self.ends and found != END:
            raise UnknownTarget(node=name, target=wanted, known=", ".join([*self.nodes, END]))
        return Send(found, target.given) if isinstance(target, Send) else found

    def _found(self, name: str, wanted: str) -> str:
        """Return the full name of `wanted` as `name` means it: from its own subgraph outwards."""
        scope = name
        while scope:
            scope = scope.rpartition("/")[0]
            full = f"{scope}/{wanted}" if scope else wanted
            if full in self.nodes or full in self.ends:
                return full
        return wanted

    def left(self, name: str, target: str) -> set[str]:
        """Return the fields of the subgraphs that are left by going from `name` to `target`."""
        return {
            one
            for scope, fields in self.own_fields.items()
            if name.startswith(f"{scope}/") and not target.startswith(f"{scope}/")
            for one in fields
        }

    def keeps(self, field: str, at: str) -> bool:
        """Say whether a field is one of the graph's at node `at`, not a subgraph's somewhere
        else.
        """
        owners = [scope for scope, fields in self.own_fields.items() if field in fields]
        return not owners or any(at.startswith(f"{scope}/") for scope in owners)

    def reduces(self, field: str) -> bool:
        """Say whether updates of a field are joined by a reducer."""
        return state_fields(self.state)[field].reducer is not None

    @property
    def tools(self) -> dict[str, Tool]:
        """All tools of the graph's tool nodes by name, and of the agents among them."""
        found: dict[str, Tool] = {}
        for node in self.tool_nodes().values():
            found = {**node.tools, **found}
        for made in list(found.values()):
            if made.agent is not None:
                found = {**made.agent.tools, **found}
        return found

    @property
    def sources(self) -> list[ToolSource]:
        """The sources of tools of the graph and of the agents among its tools."""
        found: list[ToolSource] = []
        for node in self.tool_nodes().values():
            found += node.sources
            found += [
                one for made in node.tools.values() if made.agent for one in made.agent.sources
            ]
        return found

    def tool_nodes(self) -> dict[str, ToolNode]:
        """Return the nodes that run tools, by name."""
        return {name: node for name, node in self.nodes.items() if isinstance(node, ToolNode)}

    def fingerprint(self) -> str:
        """A digest of the shape: nodes, edges, state fields, tools. Another shape, another
        digest.
        """
        return digest(
            {
                "nodes": sorted(self.nodes),
                "edges": sorted([source, *targets] for source, targets in self.edges.items()),
                "routes": sorted(self.routes),
                "state": sorted(state_fields(self.state)),
                "tools": sorted(made.fingerprint for made in self.tools.values()),
            }
        )[:16]


def _listed(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, list | tuple) else [answer]


def takes_context(node: Callable[..., Any]) -> bool:
    """Say whether a node wants `ctx` as its second parameter."""
    parameters = list(inspect.signature(node).parameters.values())
    return (len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty) or any(
        parameter.name == "ctx" for parameter in parameters
    )
