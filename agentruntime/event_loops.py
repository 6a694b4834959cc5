"""The event loop on which a process runs async user code: left when it is stuck, ended in the end.

What lives as long as its loop (connections to model providers) names itself with `at_end` and is
closed on the loop before that stops.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

STUCK_SECONDS = 2.0
"""How long an event loop may be silent before new work goes to another."""
CLOSE_SECONDS = 5.0
"""How long closing what lives on a loop may take."""
LOOK_AGAIN = 0.2


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._asked_at: float | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="agentruntime-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:  # user code may stop it, or exit from a task: others work on it
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        with suppress(Exception):
            self.loop.run_until_complete(_close_all())
        self.loop.close()

    def answers(self, seconds: float) -> bool:
        """Say whether the loop gives a sign of life within so many seconds."""
        answered = threading.Event()
        self.loop.call_soon_threadsafe(answered.set)
        return answered.wait(seconds)

    def is_silent(self) -> bool:
        """Ask for a sign of life, or say whether the last one is overdue. Does not wait."""
        asked = self._asked_at
        if asked is None:
            self._asked_at = time.monotonic()
            self.loop.call_soon_threadsafe(self._answer)
            return False
        return time.monotonic() - asked > STUCK_SECONDS

    def _answer(self) -> None:
        self._asked_at = None

    def retire(self) -> None:
        """End the loop when whoever blocks it lets go of it and its tasks are done."""
        self.loop.call_soon_threadsafe(self.loop.call_later, LOOK_AGAIN, self._end_when_empty)

    def _end_when_empty(self) -> None:
        if asyncio.all_tasks(self.loop):
            self.loop.call_later(LOOK_AGAIN, self._end_when_empty)
        else:
            self._is_over = True
            self.loop.stop()

    def wait(self, seconds: float) -> bool:
        """Wait until a retired loop has ended; say whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


_loop: _Loop | None = None
_lock = threading.Lock()
_closers: list[Callable[[], Awaitable[None]]] = []


def at_end(close: Callable[[], Awaitable[None]]) -> None:
    """Have `close()` awaited on each event loop of this process before it stops."""
    _closers.append(close)


async def _close_all() -> None:
    async with asyncio.timeout(CLOSE_SECONDS):
        for close in _closers:
            await close()


def _forget() -> None:
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop on which this process runs async user code."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = _Loop()
        return _loop.loop


def replace_stuck_loop(seconds: float = 0.5) -> bool:
    """Leave the event loop to whoever blocks it, if it does not answer; say whether it was so."""
    global _loop
    with _lock:
        if _loop is None or _loop.answers(seconds):
            return False
        _loop.retire()
        _loop = _Loop()
        return True


def leave_silent_loop() -> bool:
    """Give new work another event loop if this one has been silent for long; never waits."""
    global _loop
    with _lock:
        if _loop is None or not _loop.is_silent():
            return False
        _loop.retire()
        _loop = _Loop()
        return True


def end_event_loop(seconds: float = CLOSE_SECONDS) -> bool:
    """Close what lives on the event loop and end it, for a worker that ends; say whether that was
    done in time. What is async after that begins another loop.
    """
    global _loop
    with _lock:
        ended, _loop = _loop, None
    if ended is None:
        return True
    ended.retire()
    return ended.wait(seconds)


def on_event_loop() -> bool:
    """Say whether the caller runs on an event loop, where it must not block for long."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
