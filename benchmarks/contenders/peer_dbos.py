"""Peer: DBOS, a thread as one workflow, a message as one synchronous step.

DBOS keeps no conversation: the history is what the steps returned. A thread that grows is one
workflow here, without turns, which is the case that favours it.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

import benchmarks.contenders as base
from benchmarks.text import text

marks: dict[str, list[float]] = {}
tool_at: dict[str, float] = {}
orders: dict[str, queue.Queue[int]] = {}
reports: dict[str, queue.Queue[list[float]]] = {}
waits: dict[str, threading.Event] = {}
charged = threading.Event()


@DBOS.step()
def count(thread: str, size: int) -> dict[str, str]:
    """One step."""
    marks.setdefault(thread, []).append(time.perf_counter())
    return {"role": "assistant", "content": text(size)}


@DBOS.workflow()
def chain(steps: int) -> int:
    """Steps in a row."""
    return len([count(DBOS.workflow_id, 12) for _ in range(steps)])


@DBOS.workflow()
def growing(size: int) -> int:
    """A thread that grows as it is ordered to."""
    thread, have = DBOS.workflow_id, 0
    while True:
        upto, took = orders[thread].get(), []
        while have < upto:
            begun = time.perf_counter()
            for _ in range(10):
                count(thread, size)
            have += 10
            took.append((time.perf_counter() - begun) / 10)
        reports[thread].put(took)


@DBOS.step()
async def think(thread: str) -> str:
    """A model call."""
    marks.setdefault(thread, []).append(time.perf_counter())
    return "one moment"


@DBOS.step()
async def sleep(call: int, seconds: float, mode: str) -> str:
    """A tool."""
    if mode == "async":
        await asyncio.sleep(seconds)
    else:
        await asyncio.to_thread(time.sleep, seconds)
    return "ok"


@DBOS.workflow()
async def turn(number: int, seconds: float, mode: str) -> str:
    """A turn of parallel tools."""
    thread = DBOS.workflow_id
    await think(thread)
    await asyncio.gather(*(sleep(call, seconds, mode) for call in range(number)))
    return await think(thread)


@DBOS.step()
def charge(thread: str) -> str:
    """The tool behind the question."""
    tool_at[thread] = time.perf_counter()
    charged.set()
    return "charged"


@DBOS.workflow()
def gated(messages: int, size: int) -> str:
    """A conversation that ends in a question."""
    thread = DBOS.workflow_id
    for _ in range(messages):
        count(thread, size)
    waits.setdefault(thread, threading.Event()).set()
    DBOS.recv("answer", timeout_seconds=3600)
    return charge(thread)


class Contender(base.Contender):
    """Workflows in this process; the pool has room for all threads."""

    def _launch(self, migrations: bool) -> None:
        DBOS(
            config=DBOSConfig(
                name="bench",
                system_database_url=self.place.dsn,
                log_level="ERROR",
                sys_db_pool_size=max(self.place.threads, 16) + 4,
                run_migrations=migrations,
                executor_id=f"process-{self.place.process}",
                application_version="1",
            )
        )
        DBOS.launch()

    def migrate(self) -> None:
        self._launch(True)
        DBOS.destroy()

    def open(self) -> None:
        self.handles: dict[str, Any] = {}
        self._launch(False)

    def close(self) -> None:
        if not orders:  # a thread that grows never ends
            DBOS.destroy()

    def _start(self, workflow: Any, thread: str, *arguments: Any) -> Any:
        with SetWorkflowID(thread):
            return DBOS.start_workflow(workflow, *arguments)

    def step(self, thread: str, steps: int) -> list[float]:
        with SetWorkflowID(thread):
            chain(steps)
        ended = [*marks.pop(thread), time.perf_counter()]
        return [after - before for before, after in itertools.pairwise(ended)]

    def many(self, threads: list[str], steps: int) -> None:
        for handle in [self._start(chain, thread, steps) for thread in threads]:
            handle.get_result()

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        if thread not in orders:
            orders[thread], reports[thread] = queue.Queue(), queue.Queue()
            self._start(growing, thread, size)
        orders[thread].put(upto)
        return reports[thread].get()

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        self._start(turn, thread, count, seconds, mode).get_result()
        first, second = marks[thread]
        return second - first

    def pause(self, thread: str, messages: int, size: int) -> None:
        self.handles[thread] = self._start(gated, thread, messages, size)
        while thread not in waits:
            time.sleep(0.002)
        time.sleep(0.05)  # until it listens

    def answer(self, thread: str) -> dict[str, float]:
        charged.clear()
        begun = time.perf_counter()
        DBOS.send(thread, {"approved": True}, "answer")
        if thread in self.handles:
            self.handles[thread].get_result()
        else:
            charged.wait(300)  # launched anew, DBOS has taken the workflow up by itself
        done, ran = time.perf_counter(), tool_at[thread]
        return {"tool_at": ran, "to_tool": ran - begun, "to_done": done - begun}
