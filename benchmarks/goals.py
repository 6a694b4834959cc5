"""The goals as data: what is promised, against what, and where each comes from.

A goal is judged on the medians of one run. `absolute` goals hold on the machine of the run; the
others are ratios to what was measured beside it: `floor` is one raw statement (`raw`), `peer` the
best peer. Where no peer was run, a ratio to the best peer is judged by the distance that the
report of the source measured between that peer and the floor: `peer_at_floor` times worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.benches import BENCHES
from benchmarks.contenders import CONTENDERS
from benchmarks.stats import shown

FLOOR = "raw"
PROJECT = "project"
Medians = Mapping[str, Mapping[str, Mapping[str, float]]]  # bench -> contender -> metric -> value
TABLE = "issue 7, table, row {}"
WAITING = "issue 7, waiting costs nothing"


@dataclass(frozen=True)
class Goal:
    """`metric` of `bench` is at most `limit` (at least, if `at_least`), in terms of `against`.

    `against` is `absolute`, `floor`, `peer`, or the name of a contender; `less` subtracts that
    contender's figure first, and `limit` is then the allowed surplus.
    """

    bench: str
    metric: str
    limit: float
    source: str
    against: str = "absolute"
    at_least: bool = False
    less: str = ""
    peer_at_floor: float = 0.0

    @property
    def sentence(self) -> str:
        """The goal in words, without the figure that was reached."""
        relation = "at least" if self.at_least else "at most"
        what = {"absolute": "", "floor": " times the floor", "peer": " times the best peer"}[
            self.against
        ]
        surplus = f" above {CONTENDERS[self.less].title}" if self.less else ""
        title = BENCHES[self.bench].title
        return f"{title}: {self.metric} {relation} {shown(self.limit)}{what}{surplus}"


@dataclass(frozen=True)
class Verdict:
    """A goal with the value reached (in the goal's own terms), or None where it was not run."""

    goal: Goal
    value: float | None
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is within the limit."""
        if self.value is None:
            return False
        goal = self.goal
        return self.value >= goal.limit if goal.at_least else self.value <= goal.limit


def row(number: int) -> str:
    """A row of the issue's table as a source."""
    return TABLE.format(number)


GOALS = (
    Goal("step", "ms_step", 1.5, row(1), "floor"),
    Goal("step", "ms_step", 1 / 3.5, row(1), "peer", peer_at_floor=5.4),
    # The run's own start, claim and end are in these counts, spread over its 50 steps.
    Goal("step", "transactions_step", 1.1, row(1)),
    Goal("step", "flushes_step", 1.1, row(1)),
    Goal("step", "wal_kb_step", 3.0, row(1)),
    Goal("many_1", "steps_s", 5.0, row(2), "peer", at_least=True, peer_at_floor=9.2),
    Goal("many_2", "steps_s", 5.0, row(2), "peer", at_least=True, peer_at_floor=7.6),
    Goal("many_1", "flushes_step", 0.4, row(2)),
    Goal("many_1", "cpu_ms_step", 0.3, row(2)),
    Goal("grow", "growth", 1.2, row(3)),
    Goal("grow", "ms_at_1000", 1.0, row(3)),
    Goal("grow", "wal_mb", 3.0, row(4)),
    Goal("grow", "wal_growth", 11.0, row(4)),
    Goal("grow", "redis_kb_at_1000", 100.0, row(4)),
    Goal("tools_async", "overhead_ms", 5.0, row(5)),
    Goal("tools_sync", "overhead_ms", 7.0, row(5)),
    Goal("tools_async", "flushes_turn", 7.0, row(5)),
    Goal("answer", "to_tool_ms", 1.0, row(6)),
    Goal("rest", "to_tool_ms", 10.0, row(6)),
    Goal("rest", "to_tool_p99_ms", 50.0, row(6)),
    Goal("cold", "from_exec_ms", 400.0, row(7)),
    Goal("cold", "after_import_ms", 45.0, row(7)),
    Goal("retail", "wrong", 0.0, "issue 2, what it must show, 8"),
    Goal("waiting", "done_s", 8.0, WAITING),
    Goal("waiting", "connections", 20.0, WAITING),
    Goal("waiting", "peak_mib", 300.0, WAITING),
    Goal("many_1", "peak_mib", 65.0, row(8)),
    Goal("import", "import_ms", 60.0, row(8), less="django_dramatiq"),
)


def judge(goal: Goal, medians: Medians) -> Verdict:
    """Hold one goal against the medians of a run."""
    of_bench = medians.get(goal.bench, {})
    value = of_bench.get(PROJECT, {}).get(goal.metric)
    if value is None:
        return Verdict(goal, None, "not measured")
    if goal.less:
        base = of_bench.get(goal.less, {}).get(goal.metric)
        return Verdict(goal, None if base is None else value - base)
    if goal.against == "absolute":
        return Verdict(goal, value)
    floor = of_bench.get(FLOOR, {}).get(goal.metric)
    if goal.against == "floor":
        return Verdict(goal, value / floor if floor else None)
    best = best_peer(goal.bench, of_bench)
    if best is not None:
        return Verdict(goal, value / of_bench[best][goal.metric], CONTENDERS[best].title)
    if not floor:
        return Verdict(goal, None, "not measured")
    peer = floor / goal.peer_at_floor if BENCHES[goal.bench].higher else floor * goal.peer_at_floor
    return Verdict(goal, value / peer, "by the report's distance of peer and floor")


def best_peer(bench: str, of_bench: Mapping[str, Mapping[str, float]]) -> str | None:
    """The peer with the best headline in a bench, or None where none was run."""
    headline = BENCHES[bench].headline
    peers = [n for n in of_bench if CONTENDERS[n].kind == "peer" and headline in of_bench[n]]
    if not peers:
        return None
    choose = max if BENCHES[bench].higher else min
    return choose(peers, key=lambda name: of_bench[name][headline])
