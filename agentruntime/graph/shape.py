"""Where branches meet again: the nearest node that they all lead to, read off the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentruntime.exceptions import UnjoinableBranches

Exits = Mapping[str, set[str]]


def reachable(exits: Exits, starts: Sequence[str], stop: str = "") -> set[str]:
    """Return what can be reached from `starts`, themselves left out, without going past `stop`."""
    found: set[str] = set()
    ahead = list(starts)
    while ahead:
        for target in exits.get(ahead.pop(), ()):
            if target not in found:
                found.add(target)
                if target != stop:
                    ahead.append(target)
    return found


def join_of(opener: str, exits: Exits, starts: Sequence[str], free: set[str]) -> str:
    """Return the nearest node that every way from every one of `starts` comes to.

    It is the nearest common post-dominator of the edges. `free` are nodes without edges, which say
    themselves where to go: a branch with one of them leads nowhere in particular. Raises
    `UnjoinableBranches`.
    """
    always = _passed_always({one: set() if one in free else to for one, to in exits.items()})
    for one in starts:
        if any(one in always.get(other, ()) for other in starts if other != one):
            problem = f"{one!r} is both a branch and a node that another branch leads to"
            raise UnjoinableBranches(node=opener, problem=problem)
    common = set.intersection(*(always.get(one, {one}) - {one} for one in starts))
    if common:
        return max(common, key=lambda one: len(always[one]))
    on_the_way = sorted(free & {*starts, *reachable(exits, starts)})
    problem = (
        f"{on_the_way[0]!r} has no edge that says where its branch leads"
        if on_the_way
        else f"there is no node that all of {', '.join(map(repr, dict.fromkeys(starts)))} lead to"
    )
    raise UnjoinableBranches(node=opener, problem=problem)


def _passed_always(exits: Exits) -> dict[str, set[str]]:
    """Return for every node those that every way from it to an end comes to, itself included."""
    nodes = {*exits, *(target for targets in exits.values() for target in targets)}
    always = {one: set(nodes) if exits.get(one) else {one} for one in nodes}
    changed = True
    while changed:
        changed = False
        for one in nodes:
            if targets := exits.get(one):
                found = {one} | set.intersection(*(always[target] for target in targets))
                if found != always[one]:
                    always[one], changed = found, True
    return always
