"""Named points at which a test lets a process die. Nothing happens unless a test names one.

The points of a step are P0 to P15, of an approval A1 to A5, of a stop S1, of a take-over R1, of a
timer T1; `tests/faults` says where each lies. `AGENTRUNTIME_CRASH` holds `NAME[:HIT[:HOW]]`: the
point, at which hit (1), and how: `kill` (SIGKILL), `stop` (SIGSTOP) or `raise`.
"""

from __future__ import annotations

import os
import signal

_armed: list[str | int] = []


class SimulatedCrash(BaseException):
    """What `raise` raises: no handler of the runtime knows it."""


def arm(plan: str) -> None:
    """Name the point of this process; an empty text disarms it."""
    name, _, rest = plan.partition(":")
    hit, _, how = rest.partition(":")
    _armed[:] = [name, int(hit or 1), how or "kill"] if name else []


def crash_point(name: str) -> None:
    """End this process here, if a test has named this point."""
    if not _armed or _armed[0] != name:
        return
    _armed[1] = int(_armed[1]) - 1
    if _armed[1] == 0:
        how = _armed[2]
        _armed.clear()
        if how == "raise":
            raise SimulatedCrash(name)
        os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)


arm(os.environ.get("AGENTRUNTIME_CRASH", ""))
