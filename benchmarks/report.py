"""A run's figures as text: one table per bench, the goals, the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from benchmarks.benches import BENCHES
from benchmarks.contenders import CONTENDERS
from benchmarks.goals import FLOOR, GOALS, Verdict, judge
from benchmarks.rounds import Rounds, best_peer, medians_of, ratios, values_of
from benchmarks.stats import median, shown, spread

HIDDEN = {
    "grow": ("ms_at_", "growth", "wal_mb", "wal_growth", "size_kb_at_1000", "redis_kb_at_1000")
}


def ranged(values: Sequence[float]) -> str:
    """A median with the lowest and highest."""
    if not values:
        return "-"
    if len(values) == 1:
        return shown(values[0])
    low, high = spread(values)
    return f"{shown(median(values))} ({shown(low)}-{shown(high)})"


def table_of(bench: str, rounds: Rounds) -> str:
    """One bench: medians, the headline's spread, and its ratios to the floor and the best peer.

    Ratios are of two figures of one round: `x floor` 2 means twice the floor's figure.
    """
    of_bench = rounds[bench]
    medians = {name: medians_of(series) for name, series in of_bench.items()}
    medians = {name: numbers for name, numbers in medians.items() if numbers}
    if not medians:
        return ""
    best, headline = best_peer(bench, of_bench), BENCHES[bench].headline
    wanted = HIDDEN.get(bench, ("",))
    columns = [
        c for c in dict.fromkeys(c for m in medians.values() for c in m) if c.startswith(wanted)
    ]
    order = sorted(medians, key=lambda n: medians[n][headline], reverse=BENCHES[bench].higher)
    lines = [
        f"\n### {BENCHES[bench].title}\n",
        "| | " + " | ".join([*columns, "low-high", "x floor", "x best peer"]) + " |",
        "|---" * (len(columns) + 4) + "|",
    ]
    for name in order:
        figures = [shown(medians[name].get(column)) for column in columns]
        low, high = spread(values_of(of_bench, name, headline))
        to_floor = ratios(of_bench, name, FLOOR, headline)
        to_peer = ratios(of_bench, name, best, headline) if best else []
        figures += [f"{shown(low)}-{shown(high)}", ranged(to_floor), ranged(to_peer)]
        lines.append(f"| {CONTENDERS[name].title} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def verdicts_of(rounds: Rounds) -> list[Verdict]:
    """Every goal of the benches that were run, judged."""
    return [judge(goal, rounds) for goal in GOALS if goal.bench in rounds]


def goals_table(verdicts: Sequence[Verdict]) -> str:
    """Every goal with what was reached."""
    lines = ["\n### Goals\n", "| goal | reached | | source |", "|---|---|---|---|"]
    for verdict in verdicts:
        word = "met" if verdict.met else ("missed" if verdict.value is not None else "not measured")
        note = f" ({verdict.note})" if verdict.note and verdict.value is not None else ""
        lines.append(
            f"| {verdict.goal.sentence} | {shown(verdict.value)}{note} | {word} "
            f"| {verdict.goal.source} |"
        )
    return "\n".join(lines)


def closing_line(verdicts: Sequence[Verdict]) -> str:
    """`N of M goals met`: a goal whose bench failed is not met."""
    return f"{sum(v.met for v in verdicts)} of {len(verdicts)} goals met"


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "load average": " ".join(f"{x:.1f}" for x in os.getloadavg()),
        "Python": platform.python_version(),
    }
