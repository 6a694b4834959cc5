"""Medians, percentiles, spreads, and how numbers are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["median", "percentile", "shown", "spread"]


def percentile(values: Sequence[float], rank: float) -> float:
    """The nearest-rank percentile, `rank` from 0 to 100, of values that are not empty."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(rank / 100 * len(ordered))) - 1]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest."""
    return min(values), max(values)


def shown(value: float | None) -> str:
    """A number with about three figures; a dash where there is none."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
