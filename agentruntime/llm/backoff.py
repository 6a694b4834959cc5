"""How long to wait before asking again."""

from __future__ import annotations

import random

from agentruntime.llm.options import ModelOptions


def wait_before(attempt: int, asked_for: float | None, options: ModelOptions) -> float | None:
    """Return the seconds to wait after attempt number `attempt` (from 1), or None: do not wait.

    The wait doubles with each attempt and is drawn from its upper half, so that many workers do not
    come back at once. A provider's `Retry-After` is the least; more than `longest_wait` is not
    waited for.
    """
    if asked_for is not None and asked_for > options.longest_wait:
        return None
    most = min(options.first_wait * 2.0 ** (attempt - 1), options.longest_wait)
    drawn = random.uniform(most / 2, most)
    if asked_for is None:
        return drawn
    return asked_for + drawn * 0.1
