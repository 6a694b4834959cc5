"""What the rounds of a run gave, and how figures of one round are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.benches import BENCHES
from benchmarks.contenders import CONTENDERS
from benchmarks.stats import median

Numbers = dict[str, float]
Series = Sequence[Numbers | None]  # one contender, one bench; None where a round failed
OfBench = Mapping[str, Series]  # by contender
Rounds = Mapping[str, OfBench]  # by bench


def medians_of(series: Series) -> Numbers:
    """The median of each metric over the rounds that gave it."""
    given = [numbers for numbers in series if numbers]
    names = dict.fromkeys(name for numbers in given for name in numbers)
    return {name: median([n[name] for n in given if name in n]) for name in names}


def values_of(of_bench: OfBench, name: str, metric: str) -> list[float]:
    """A metric of one contender in every round that gave it."""
    return [numbers[metric] for numbers in of_bench.get(name, ()) if numbers and metric in numbers]


def pairs_of(of_bench: OfBench, name: str, base: str, metric: str) -> list[tuple[float, float]]:
    """A metric of two contenders in every round that gave it for both."""
    both = zip(of_bench.get(name, ()), of_bench.get(base, ()), strict=False)
    return [(a[metric], b[metric]) for a, b in both if a and b and metric in a and metric in b]


def ratios(of_bench: OfBench, name: str, base: str, metric: str) -> list[float]:
    """`name` over `base` in every round that has both."""
    return [a / b for a, b in pairs_of(of_bench, name, base, metric) if b]


def best_peer(bench: str, of_bench: OfBench) -> str | None:
    """The peer with the best median headline in a bench, or None where none was run."""
    headline = BENCHES[bench].headline
    found = {
        name: median(values)
        for name in of_bench
        if CONTENDERS[name].kind == "peer" and (values := values_of(of_bench, name, headline))
    }
    choose = max if BENCHES[bench].higher else min
    return choose(found, key=lambda name: found[name]) if found else None
