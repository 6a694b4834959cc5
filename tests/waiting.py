"""Waiting for a condition with a deadline, which tests do instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    timeout: float = 10,
    what: str | Callable[[], str] = "the condition",
    pause: float = 0.02,
) -> T:
    """Call `condition` until it is true and return what it gave; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > deadline:
            named = what() if callable(what) else what
            raise AssertionError(f"Waited {timeout} s for {named}.")
        time.sleep(pause)
    return answer
