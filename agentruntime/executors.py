"""Where user code runs: threads that can be given up, and an event loop that can be replaced.

Whoever starts a `Work` waits for it on a queue of its own, with a deadline, and may give it up: the
place is free at once, whatever the work still does. What it brings later goes to `on_late`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connections

IDLE_SECONDS = 60.0


class Work:
    """One call of user code on its way. `result` or `error` is set when it is done."""

    def __init__(self, inbox: SimpleQueue[Any]) -> None:
        self.inbox = inbox
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.on_late: Callable[[Work], None] | None = None
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Take the outcome in, and tell whoever waits, or whoever wants late news."""
        with self._lock:
            self.result, self.error, self.done = result, error, True
            late = self.on_late
        if late is not None:
            late(self)
        else:
            self.inbox.put(self)

    def give_up(self, on_late: Callable[[Work], None]) -> bool:
        """Stop waiting for this; say whether it was still at work. Async work is cancelled."""
        with self._lock:
            if self.done:
                return False
            self.on_late = on_late
        if self._cancel is not None:
            self._cancel()
        return True

    @property
    def can_be_cancelled(self) -> bool:
        return self._cancel is not None


class _Threads:
    """Threads that are kept while they are used; one that is stuck is simply never used again."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []
        self._lock = threading.Lock()

    def run(self, job: Callable[[], None]) -> None:
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is not None:
            jobs.put(job)
            return
        jobs = SimpleQueue()
        jobs.put(job)
        threading.Thread(
            target=self._serve, args=(jobs,), name="agentruntime-work", daemon=True
        ).start()

    def _serve(self, jobs: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                job = jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if jobs not in self._idle:
                        continue  # handed a job at this very moment
                    self._idle.remove(jobs)
                return
            job()
            del job
            with self._lock:
                self._idle.append(jobs)


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(
            target=self.loop.run_forever, name="agentruntime-loop", daemon=True
        ).start()

    def answers(self, seconds: float) -> bool:
        answered = threading.Event()
        self.loop.call_soon_threadsafe(answered.set)
        return answered.wait(seconds)


_threads = _Threads()
_loop: _Loop | None = None
_loop_lock = threading.Lock()


def _forget() -> None:
    global _threads, _loop, _loop_lock
    _threads, _loop, _loop_lock = _Threads(), None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop on which this process runs async user code."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = _Loop()
        return _loop.loop


def replace_stuck_loop(seconds: float = 0.5) -> bool:
    """Leave the event loop to whoever blocks it, if it does not answer; say whether it was so."""
    global _loop
    with _loop_lock:
        if _loop is None or _loop.answers(seconds):
            return False
        _loop = _Loop()
        return True


def start(fn: Callable[..., Any], inbox: SimpleQueue[Any], *args: Any, **kwargs: Any) -> Work:
    """Start a plain function in a thread, in a copy of the caller's context variables."""
    work = Work(inbox)
    context = contextvars.copy_context()

    def job() -> None:
        try:
            outcome = (context.run(fn, *args, **kwargs), None)
        except BaseException as error:  # the signals of the runtime are BaseExceptions
            outcome = (None, error)
        finally:
            connections.close_all()
        work.finish(*outcome)

    _threads.run(job)
    return work


def start_async(
    fn: Callable[..., Coroutine[Any, Any, Any]], inbox: SimpleQueue[Any], *args: Any, **kwargs: Any
) -> Work:
    """Start an async function on the event loop, in a copy of the caller's context variables."""
    work = Work(inbox)
    context = contextvars.copy_context()
    loop = event_loop()
    task: list[asyncio.Task[Any]] = []

    async def job() -> None:
        try:
            work.finish(await fn(*args, **kwargs))
        except BaseException as error:
            work.finish(None, error)

    def begin() -> None:
        task.append(loop.create_task(job(), context=context))

    def cancel() -> None:
        loop.call_soon_threadsafe(lambda: task and task[0].cancel())

    work._cancel = cancel
    loop.call_soon_threadsafe(begin)
    return work


def run_beside(fn: Callable[[], Any]) -> Any:
    """Run `fn` in a thread and wait for it: for database work that is asked for on an event
    loop.
    """
    inbox: SimpleQueue[Work] = SimpleQueue()
    work = start(fn, inbox)
    inbox.get()
    if work.error is not None:
        raise work.error
    return work.result


def on_event_loop() -> bool:
    """Say whether the caller runs on an event loop, where it must not block for long."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def now() -> float:
    """Return the seconds of the monotonic clock, for deadlines inside one process."""
    return time.monotonic()
