"""A registered graph as a picture: where its nodes and lines lie; a template draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.utils.translation import gettext as _

from agentruntime.graph import END, START, StateGraph, ToolNode

BOX_WIDTH, BOX_HEIGHT = 170, 44
ACROSS, DOWN = 206, 84
EDGE = 16
LONGEST = 20


class Box(NamedTuple):
    """A node: its name, its place (`x`, `y` is the upper left corner), and what is written."""

    name: str
    x: int
    y: int
    label: str
    note: str
    shape: str

    @property
    def middle(self) -> int:
        return self.x + BOX_WIDTH // 2

    @property
    def base(self) -> int:
        return self.y + BOX_HEIGHT


class Line(NamedTuple):
    """An arrow as an SVG path; `kind` is `always`, or `maybe` where the run chooses."""

    path: str
    kind: str


@dataclass(frozen=True)
class Picture:
    """What the template draws, and the same in words for who does not see it."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[Line]
    told: str
    is_wide: bool
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def picture_of(graph: StateGraph) -> Picture:
    """Lay the graph's nodes out in rows, by how many steps they are from the start."""
    exits = _exits(graph)
    rows = _rows(exits)
    widest = max(map(len, rows))
    boxes = {
        name: _box(graph, name, _left(column, len(row), widest), EDGE + depth * DOWN)
        for depth, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    right = EDGE + widest * ACROSS
    lines, lanes = [], 0
    for source, targets in exits.items():
        kind = "always" if source in graph.edges or source == START else "maybe"
        for target in targets:
            a, b = boxes[source], boxes[target]
            is_next = b.y - a.y == DOWN
            lanes += not is_next
            path = _down(a, b) if is_next else _beside(a, b, right + 10 * lanes)
            lines.append(Line(path, kind))
    height = EDGE * 2 + (len(rows) - 1) * DOWN + BOX_HEIGHT
    width = right + 10 * lanes + EDGE
    return Picture(width, height, list(boxes.values()), lines, _told(exits), widest > 1)


def shown_name(name: str) -> str:
    """Return how a node is called on the page."""
    return {START: _("Start"), END: _("End")}.get(name, name)


def _exits(graph: StateGraph) -> dict[str, list[str]]:
    """Where each node may lead, the ends of subgraphs passed; none where it may lead anywhere."""
    known = graph.exits()
    open_ended = {name for name in graph.free if name in graph.nodes}
    open_ended |= {name for name, route in graph.routes.items() if route.targets is None}

    def through(targets: set[str], seen: frozenset[str] = frozenset()) -> set[str]:
        found: set[str] = set()
        for one in targets:
            if one not in graph.ends:
                found.add(one)
            elif one not in seen:
                found |= through(known.get(one, set()), seen | {one})
        return found

    order = [START, *graph.nodes, END]
    exits = {}
    for name in order[:-1]:
        found = set() if name in open_ended else through(known.get(name, set()))
        exits[name] = [one for one in order if one in found]
    return exits


def _rows(exits: dict[str, list[str]]) -> list[list[str]]:
    """Put each node below all that lead to it; ways back do not count."""
    order = _order(exits)
    place = {name: index for index, name in enumerate(order)}
    depth = {START: 0}
    for name in order:
        for target in exits.get(name, ()):
            if place[target] > place[name]:
                depth[target] = max(depth.get(target, 0), depth[name] + 1)
    last = max((row for name, row in depth.items() if name != END), default=0) + 1
    for name in exits:  # what only a choice at run time leads to
        depth.setdefault(name, last)
    depth[END] = max(row for name, row in depth.items() if name != END) + 1
    rows: list[list[str]] = [[] for _row in range(depth[END] + 1)]
    for name in [*exits, END]:
        rows[depth[name]].append(name)
    return [row for row in rows if row]


def _order(exits: dict[str, list[str]]) -> list[str]:
    """Return what can be reached from the start so that every edge but a way back leads on."""
    left: list[str] = []
    seen = {START}
    ahead = [(START, iter(exits[START]))]
    while ahead:
        name, targets = ahead[-1]
        target = next((one for one in targets if one not in seen), None)
        if target is None:
            left.append(name)
            ahead.pop()
        else:
            seen.add(target)
            ahead.append((target, iter(exits.get(target, ()))))
    return left[::-1]


def _left(column: int, columns: int, widest: int) -> int:
    return EDGE + (widest - columns) * ACROSS // 2 + column * ACROSS + (ACROSS - BOX_WIDTH) // 2


def _box(graph: StateGraph, name: str, x: int, y: int) -> Box:
    label = shown_name(name)
    cut = label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
    node = graph.nodes.get(name)
    route = graph.routes.get(name)
    note = ""
    if isinstance(node, ToolNode):
        count = len(node.tools)
        note = _("%(count)d tools") % {"count": count} if count != 1 else _("1 tool")
    elif name in graph.free or (route is not None and route.targets is None):
        note = _("goes where it says")
    return Box(name, x, y, cut, note, "end" if name in (START, END) else "step")


def _down(a: Box, b: Box) -> str:
    half = (b.y - a.base) // 2
    return (
        f"M{a.middle} {a.base} C{a.middle} {a.base + half} {b.middle} {b.y - half} {b.middle} {b.y}"
    )


def _beside(a: Box, b: Box, lane: int) -> str:
    """A line that passes other rows, or goes back: around them, on the right."""
    leaves, comes = a.y + BOX_HEIGHT * 2 // 3, b.y + BOX_HEIGHT // 3
    start, goal = a.x + BOX_WIDTH, b.x + BOX_WIDTH
    return f"M{start} {leaves} C{lane} {leaves} {lane} {comes} {goal} {comes}"


def _told(exits: dict[str, list[str]]) -> str:
    ways = [
        _("%(node)s leads to %(targets)s.")
        % {"node": shown_name(name), "targets": ", ".join(map(shown_name, targets))}
        for name, targets in exits.items()
        if targets
    ]
    return " ".join(ways)
