"""How many calls of a tool work at once in this process (`concurrency`), and who waits for one.

A call takes its place before it is marked as started; one that gets none stays pending. One that
was given up gives its place free, whatever its body still does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agentruntime.graph.tools import Tool
from agentruntime.lifecycle.lease import Control

Key = tuple[str, str, str]


def _key(tool: Tool) -> Key:
    fn = tool.fn
    return tool.name, getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")


class Slots:
    """The places of all tools of this process that have a limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Key, set[int]] = {}
        self._waiting: set[Control] = set()

    def is_free(self, tool: Tool) -> bool:
        """Say whether one more call of the tool may work."""
        limit = tool.concurrency
        return limit is None or len(self._held.get(_key(tool), ())) < max(limit, 1)

    def take(self, tool: Tool, call: int) -> bool:
        """Take a place for a call (the id of its row), or keep the one it has; say whether."""
        if tool.concurrency is None:
            return True
        with self._lock:
            held = self._held.setdefault(_key(tool), set())
            if call not in held and not self.is_free(tool):
                return False
            held.add(call)
            return True

    def release(self, calls: set[int]) -> None:
        """Give the places of some calls free, and wake whoever waits for one."""
        with self._lock:
            before = sum(map(len, self._held.values()))
            self._held = {key: left for key, held in self._held.items() if (left := held - calls)}
            if sum(map(len, self._held.values())) == before:
                return
            waiting = list(self._waiting)
        for control in waiting:
            control.wake()

    @contextmanager
    def heard_by(self, control: Control) -> Iterator[None]:
        """Let `control` hear of places that are given free during the block."""
        with self._lock:
            self._waiting.add(control)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(control)


slots = Slots()


def _forget() -> None:
    slots.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget)
