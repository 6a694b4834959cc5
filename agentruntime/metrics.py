"""Counters and histograms through the OpenTelemetry API; without an SDK they cost next to
nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.dispatch import receiver
from opentelemetry import metrics

from agentruntime.signals import counted

PREFIX = "agentruntime."
HISTOGRAMS = {"sweep.lag": "s", "step.duration": "s", "recovery.duration": "s"}


@cache
def _instrument(name: str) -> Any:
    meter = metrics.get_meter("agentruntime")
    if name in HISTOGRAMS:
        return meter.create_histogram(PREFIX + name, unit=HISTOGRAMS[name])
    return meter.create_counter(PREFIX + name)


@receiver(counted, dispatch_uid="agentruntime.metrics")
def count(
    *, name: str, value: float = 1, attributes: dict[str, Any] | None = None, **_: Any
) -> None:
    """Add to the counter `name`, or record `value` in its histogram."""
    instrument = _instrument(name)
    if name in HISTOGRAMS:
        instrument.record(value, attributes or {})
    else:
        instrument.add(value, attributes or {})
