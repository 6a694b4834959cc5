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
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.db import connections

IDLE_SECONDS = 60.0
STUCK_SECONDS = 2.0
"""How long an event loop may be silent before new work goes to another."""


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


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._asked_at: float | None = None
        threading.Thread(target=self._run, name="agentruntime-loop", daemon=True).start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()  # it was retired

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
        self.loop.call_soon_threadsafe(self._end_when_empty)

    def _end_when_empty(self) -> None:
        if asyncio.all_tasks(self.loop):
            self.loop.call_later(1.0, self._end_when_empty)
        else:
            self.loop.stop()


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
        _loop.retire()
        _loop = _Loop()
        return True


def leave_silent_loop() -> bool:
    """Give new work another event loop if this one has been silent for long; never waits."""
    global _loop
    with _loop_lock:
        if _loop is None or not _loop.is_silent():
            return False
        _loop.retire()
        _loop = _Loop()
        return True


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
