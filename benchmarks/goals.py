"""The goals as data: what is promised, against what, and where each comes from.

A goal is judged on the medians over the rounds of one run. `absolute` goals hold on the machine of
the run; the others are ratios to what was measured beside it: `floor` is one raw statement
(`raw`), `peer` the best peer. Where no peer was run, a ratio to the best peer is judged by the
distance that the report of the source measured between that peer and the floor: `peer_at_floor`
times worse.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.benches import BENCHES
from benchmarks.contenders import CONTENDERS
from benchmarks.rounds import OfBench, Rounds, best_peer, pairs_of, ratios, values_of
from benchmarks.stats import median, shown

FLOOR = "raw"
PROJECT = "project"
TABLE = "table, row {}"
WAITING = "waiting costs nothing"


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
    """A row of the table of goals as a source."""
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
    Goal("faults", "kill_worst_s", 8.0, "nothing twice, nothing lost"),
    Goal("faults", "term_p95_s", 1.0, "nothing twice, nothing lost"),
    Goal("faults", "decide_p95_ms", 500.0, "nothing twice, nothing lost"),
    Goal("faults", "stop_worst_s", 1.0, "nothing twice, nothing lost"),
    Goal("retail", "wrong", 0.0, "each task exact"),
    Goal("waiting", "done_s", 8.0, WAITING),
    Goal("waiting", "connections", 20.0, WAITING),
    Goal("waiting", "peak_mib", 300.0, WAITING),
    Goal("many_1", "peak_mib", 65.0, row(8)),
    Goal("import", "import_ms", 60.0, row(8), less="django_dramatiq"),
)


def judge(goal: Goal, rounds: Rounds) -> Verdict:
    """Hold one goal against the rounds of a run: the median of what each round gives."""
    of_bench = rounds.get(goal.bench, {})
    values, note = reached(goal, of_bench)
    if not values:
        return Verdict(goal, None, "not measured")
    return Verdict(goal, median(values), note)


def reached(goal: Goal, of_bench: OfBench) -> tuple[list[float], str]:
    """The values of a goal in each round, in the goal's own terms, and what they were held to."""
    if goal.less:
        pairs = pairs_of(of_bench, PROJECT, goal.less, goal.metric)
        return [own - base for own, base in pairs], ""
    if goal.against == "absolute":
        return values_of(of_bench, PROJECT, goal.metric), ""
    if goal.against == "floor":
        return ratios(of_bench, PROJECT, FLOOR, goal.metric), ""
    best = best_peer(goal.bench, of_bench)
    if best is not None:
        return ratios(of_bench, PROJECT, best, goal.metric), CONTENDERS[best].title
    higher, distance = BENCHES[goal.bench].higher, goal.peer_at_floor
    scale = distance if higher else 1 / distance
    to_floor = ratios(of_bench, PROJECT, FLOOR, goal.metric)
    return [one * scale for one in to_floor], "by the report's distance of peer and floor"
