"""Budgets: what the model calls of a run may take together, in tokens, money, calls and time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import InvalidConfig

NAMES = ("tokens", "cost", "model_calls", "seconds")


@dataclass(frozen=True)
class Budget:
    """The limits of a run; None stands for no limit. `cost` is in US dollars.

    `seconds` are those in which a worker has the run: waiting for people, for a worker or for a
    long job does not count.
    """

    tokens: int | None = None
    cost: Decimal | None = None
    model_calls: int | None = None
    seconds: float | None = None

    @property
    def is_set(self) -> bool:
        return any(getattr(self, name) is not None for name in NAMES)


def budget_of(config: Mapping[str, Any]) -> Budget:
    """Return the budget of a run: its own limits, laid over those of `AGENTRUNTIME["BUDGET"]`."""
    stored = {**check_budget(runtime_settings().BUDGET), **config.get("budget", {})}
    cost = stored.pop("cost", None)
    return Budget(**stored, cost=None if cost is None else Decimal(cost))


def check_budget(given: Any) -> dict[str, Any]:
    """Return a budget as it is stored: JSON, the cost as text. Raises `InvalidConfig`."""
    if not isinstance(given, Mapping):
        raise InvalidConfig(reason="the budget is no object")
    if unknown := sorted(set(given) - set(NAMES), key=str):
        names = ", ".join(map(repr, unknown))
        raise InvalidConfig(reason=f"the budget has no {names}; it may have: {', '.join(NAMES)}")
    return {name: _limit(name, value) for name, value in given.items()}


def _limit(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("tokens", "model_calls"):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
            raise InvalidConfig(reason=f"the budget in {name} is a whole number, not {value!r:.80}")
        return value
    try:
        if isinstance(value, bool):
            raise ValueError
        amount = Decimal(str(value)) if name == "cost" else float(value)
        if not math.isfinite(amount) or amount < 0 or amount > 10**8:
            raise ValueError
    except (TypeError, ValueError, InvalidOperation):
        raise InvalidConfig(
            reason=f"the budget in {name} is a number from 0 on, not {value!r:.80}"
        ) from None
    return f"{amount:f}" if isinstance(amount, Decimal) else amount


def seconds_now() -> float:
    """Return the seconds of a clock that only moves forward."""
    return time.monotonic()


class Meter:
    """Seconds since somebody last took note of them."""

    def __init__(self) -> None:
        self._since = seconds_now()

    def take(self) -> float:
        """Return the seconds since the last time, and begin anew."""
        before, self._since = self._since, seconds_now()
        return self._since - before
