"""What the floors have in common: the order of things in each bench.

A floor gives `put` (one durable step), and a few statements; how they reach the database is its
own. The work around the statements is the same for all of them, so that only the way to the
database differs.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks.contenders import Contender, Place
from benchmarks.contenders import floor_sql as sql
from benchmarks.text import text


class StaleState(Exception):
    """Another writer has moved the thread's head."""


class Floor(Contender):
    """The benches over `put`, `open_thread`, `history`, `record`, `ask` and `decide`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.workers: ThreadPoolExecutor | None = None

    def migrate(self) -> None:
        with psycopg.connect(self.place.dsn, autocommit=True) as connection:
            connection.execute(sql.SCHEMA)

    def open(self) -> None:
        """Start the worker threads, the tool threads and the event loop."""
        self.workers = ThreadPoolExecutor(self.place.threads)
        self.tool_threads = ThreadPoolExecutor(32)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    # What a floor fills in.

    def open_thread(self, thread: str) -> None:
        """Make the thread's head row."""
        raise NotImplementedError

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        """Commit one step on the head `version`; returns the new version."""
        raise NotImplementedError

    def history(self, thread: str) -> list[tuple[str, str]]:
        """All messages as (role, content)."""
        raise NotImplementedError

    def record(self, thread: str, calls: list[str]) -> None:
        """Commit the results of these tool calls together."""
        raise NotImplementedError

    def ask(self, thread: str, contents: list[str]) -> None:
        """Make a thread of these messages that waits for an answer."""
        raise NotImplementedError

    def decide(self, thread: str) -> int:
        """Commit the answer; returns the head's version."""
        raise NotImplementedError

    # The benches.

    def step(self, thread: str, steps: int) -> list[float]:
        self.open_thread(thread)
        version, marks = 0, []
        for number in range(steps):
            marks.append(time.perf_counter())
            version = self.put(thread, version, f"message {number}")
        marks.append(time.perf_counter())
        return [after - before for before, after in itertools.pairwise(marks)]

    def many(self, threads: list[str], steps: int) -> None:
        assert self.workers
        list(self.workers.map(lambda thread: self.step(thread, steps), threads))

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        if have == 0:
            self.open_thread(thread)
        took, version = [], have
        while version < upto:
            begun = time.perf_counter()
            self.history(thread)
            for number in range(10):
                version = self.put(thread, version, text(size), "assistant" if number else "user")
            took.append((time.perf_counter() - begun) / 10)
        return took

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        self.open_thread(thread)
        done: queue.SimpleQueue[str] = queue.SimpleQueue()
        version = self.put(thread, 0, "the question", "user")
        begun = time.perf_counter()
        version = self.put(thread, version, "the model asks for tools")
        for number in range(count):
            self._start(mode, seconds, lambda call=f"call_{number}": done.put(call))
        left = count
        while left:
            calls = [done.get()]
            while not done.empty():
                calls.append(done.get())
            self.record(thread, calls)
            left -= len(calls)
        version = self.put(thread, version, "the results", "tool")
        took = time.perf_counter() - begun
        self.put(thread, version, "the final answer")
        return took

    def _start(self, mode: str, seconds: float, finished: Callable[[], None]) -> None:
        """Start one tool; `finished` is called in its thread when it returns."""

        async def waits() -> None:
            await asyncio.sleep(seconds)
            finished()

        def blocks() -> None:
            time.sleep(seconds)
            finished()

        if mode == "async":
            asyncio.run_coroutine_threadsafe(waits(), self.loop)
        else:
            self.tool_threads.submit(blocks)

    def pause(self, thread: str, messages: int, size: int) -> None:
        self.open_thread(thread)
        self.ask(thread, [text(size) for _ in range(messages)])

    def answer(self, thread: str) -> dict[str, float]:
        begun = time.perf_counter()
        version = self.decide(thread)
        self.history(thread)
        tool_at = time.perf_counter()
        self.put(thread, version, "charged", "tool")
        done = time.perf_counter()
        return {"tool_at": tool_at, "to_tool": tool_at - begun, "to_done": done - begun}
