"""Waiting for user code with every reason to end in view: deadline, stop, lost lease, shutdown."""

from __future__ import annotations

import time
from collections.abc import Mapping

from agentruntime.event_loops import replace_stuck_loop
from agentruntime.executors import Work
from agentruntime.lifecycle.lease import Control
from agentruntime.models.transactions import give_back_connection

SHORT_SECONDS = 0.005
"""How long a waiting thread keeps its connection: about what giving it back costs."""
TOGETHER_SECONDS = 0.001
"""How long after one of several works the others are waited for: what ends at about the same moment
is recorded in one commit, and a commit takes longer."""


def wait_any(control: Control, works: Mapping[Work, float | None]) -> tuple[list[Work], list[Work]]:
    """Wait for news of some works; return those that are done, and those that are overdue.

    `works` holds the deadline of each, in seconds of the monotonic clock. Both lists may be empty:
    then `control` has news. The thread's connection is given back unless the wait is a short one.
    """
    deadlines = [one for one in works.values() if one is not None]
    until = min(deadlines) if deadlines else None
    first = control.next(earliest(until, in_seconds(SHORT_SECONDS)))
    if first is None and not control.has_news and not any(work.done for work in works):
        give_back_connection()
        first = control.next(until)
    if first is not None and len(works) > 1:
        time.sleep(TOGETHER_SECONDS)
    done = [work for work in works if work.done]
    moment = time.monotonic()
    overdue = [
        work
        for work, deadline in works.items()
        if not work.done and deadline is not None and moment >= deadline
    ]
    if any(work.can_be_cancelled for work in overdue):
        replace_stuck_loop()
    return done, overdue


def earliest(*deadlines: float | None) -> float | None:
    """Return the first of some deadlines; None stands for never."""
    known = [one for one in deadlines if one is not None]
    return min(known) if known else None


def in_seconds(seconds: float | None) -> float | None:
    """Return the moment `seconds` from now, or None for never."""
    return None if seconds is None else time.monotonic() + seconds
