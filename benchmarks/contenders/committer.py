"""Group commit: the steps of all threads of a process, written together.

Whatever waits when the committer comes round is one statement and one flush. A step goes on only
when its group has committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders.floor import StaleState


class Committer:
    """`write(columns)` runs `floor_sql.STEPS` and returns its (thread, version) rows."""

    def __init__(self, write: Callable[[list[list[Any]]], Sequence[tuple[str, int]]]) -> None:
        self._write = write
        self._changed = threading.Condition()
        self._waiting: list[tuple[tuple[Any, ...], Future[int]]] = []
        threading.Thread(target=self._forever, daemon=True).start()

    def put(self, thread: str, version: int, content: str, role: str) -> int:
        """Hand in one step and wait until it is committed; returns the new version."""
        given = (thread, version, f"node {version}", sql.state_text(version), role, content)
        done: Future[int] = Future()
        with self._changed:
            self._waiting.append((given, done))
            self._changed.notify()
        return done.result()

    def _forever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                group, self._waiting = self._waiting, []
            self._commit(group)

    def _commit(self, group: list[tuple[tuple[Any, ...], Future[int]]]) -> None:
        columns = [list(column) for column in zip(*(given for given, _ in group), strict=True)]
        moved = dict(self._write(columns))
        for given, done in group:
            if given[0] in moved:
                done.set_result(moved[given[0]])
            else:
                done.set_exception(StaleState(given[0]))
