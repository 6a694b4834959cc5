"""Where user code runs: threads that can be given up, and the event loop of the process.

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
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.db import connections

from agentruntime.event_loops import event_loop

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

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """Say how the work is ended where it is; without this it can only be left to itself."""
        self._cancel = cancel

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


class _OneThread(Executor):
    """Where the blocking calls of one async work run, the ORM's among them: one after the other.

    Each work has a thread of its own, so one that hangs holds nobody else up, and its connections
    are closed when the work is over. (Without it, asgiref runs them all in one thread that keeps
    its connection for ever.)
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._has_thread = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        if not self._has_thread:
            self._has_thread = True
            _threads.run(self._serve)
        return future

    def finish(self) -> None:
        """Let the thread go once it has done what it was given; does not wait for it."""
        if self._has_thread:
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        connections.close_all()


_threads = _Threads()


def _forget() -> None:
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_forget)


def start(fn: Callable[..., Any], inbox: SimpleQueue[Any], /, *args: Any, **kwargs: Any) -> Work:
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
    fn: Callable[..., Coroutine[Any, Any, Any]],
    inbox: SimpleQueue[Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Start an async function on the event loop, in a copy of the caller's context variables."""
    work = Work(inbox)
    context = contextvars.copy_context()
    loop = event_loop()
    task: list[asyncio.Task[Any]] = []

    async def job() -> None:
        beside = _OneThread()
        try:
            async with ThreadSensitiveContext(executor=beside):
                outcome = (await fn(*args, **kwargs), None)
        except BaseException as error:
            outcome = (None, error)
        finally:
            beside.finish()
        work.finish(*outcome)

    def begin() -> None:
        task.append(loop.create_task(job(), context=context))

    def cancel() -> None:
        loop.call_soon_threadsafe(lambda: task and task[0].cancel())

    work.on_cancel(cancel)
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


def now() -> float:
    """Return the seconds of the monotonic clock, for deadlines inside one process."""
    return time.monotonic()
