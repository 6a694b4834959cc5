"""A call whose work goes on elsewhere for minutes or days: what the tool returns meanwhile."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentruntime.graph.tool_options import is_number

DAY = 86_400.0


@dataclass(frozen=True)
class Pending:
    """What a tool returns that has started a job: how to find out later what became of it.

    `handle` is JSON that names the job there. `poll(handle)`, sync or async, is asked every `every`
    seconds and returns the result, None for "not yet", or another `Pending`; what it raises has
    become of the job, but a connection that fails is tried again. It must be a function of a
    module, for another process may ask. Without `poll` the call waits for what is sent to
    `ctx.callback_url()`. After `deadline` seconds from now (None: never) the call ends as an error.
    The job is never started again, and no worker is held while it goes on.
    """

    handle: Any = None
    poll: Callable[[Any], Any] | None = None
    every: float = 30.0
    deadline: float | None = DAY

    @property
    def problem(self) -> str:
        """What is wrong with it, or empty text."""
        for seconds in (self.every, 1 if self.deadline is None else self.deadline):
            if not is_number(seconds) or seconds <= 0:
                return "`every` and `deadline` are numbers of seconds above zero"
        if self.poll is not None and name_of(self.poll) is None:
            return "`poll` is no function of a module, so that no other process could find it"
        return ""


def name_of(poll: Callable[..., Any]) -> str | None:
    """Return the name by which `find_poll` finds this function again; None if it cannot."""
    name = f"{getattr(poll, '__module__', '')}:{getattr(poll, '__qualname__', '')}"
    return name if find_poll(name) is poll else None


def find_poll(name: str) -> Callable[..., Any] | None:
    """Return the function of this name; None if there is none today."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception:  # also what a module raises that cannot be imported today
        return None
    return found if callable(found) else None
