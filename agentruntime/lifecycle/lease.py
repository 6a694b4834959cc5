"""Keeping leases alive: one keeper thread per process beats for all of its runs."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connections, transaction

from agentruntime.conf import runtime_settings
from agentruntime.event_loops import leave_silent_loop
from agentruntime.exceptions import Cancelled, LeaseLost
from agentruntime.models import DatabaseTime, Lease, Run, RunStatus
from agentruntime.signals import counted, noticed

OWNER = f"{socket.gethostname()[:60]}:{os.getpid()}"


def _rename() -> None:
    global OWNER
    OWNER = f"{socket.gethostname()[:60]}:{os.getpid()}"


class Control:
    """What one claim hears while it works: finished work, and the wish or need to end."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.stop_requested = False
        self.lost = False
        self.draining_since: float | None = None
        self.confirmed_at = time.monotonic()
        """When the lease was last known to be this process's, by the clock that goes on while the
        process is stopped."""
        self._above: Control | None = None
        self._below: list[Control] = []

    def branch(self) -> Control:
        """Return a control for work beside other work of this claim: it hears what this one
        hears.
        """
        below = Control(self.lease)
        below._above = self
        self._below.append(below)
        below._hear(self)
        return below

    def leave(self) -> None:
        """Hear nothing more: the work that listened to this is over."""
        if self._above is not None and self in self._above._below:
            self._above._below.remove(self)

    def abandon(self) -> None:
        """Have the work that hears this one end where it is."""
        self.stop_requested = True
        self.wake()

    def _hear(self, above: Control) -> None:
        self.stop_requested = self.stop_requested or above.stop_requested
        self.lost = self.lost or above.lost
        self.draining_since = self.draining_since or above.draining_since

    def confirm(self) -> None:
        """Raise `LeaseLost` if the lease may have lapsed unseen and is not held any more.

        A process that was stopped for longer than a lease wakes up in the middle of anything; this
        is asked right before an effect begins.
        """
        if self._above is not None:
            self._above.confirm()
            return
        if time.monotonic() - self.confirmed_at < runtime_settings().LEASE_SECONDS:
            return
        asked_at = time.monotonic()
        mine = Run.objects.filter(
            pk=self.lease.run_id,
            fencing_token=self.lease.fencing_token,
            status=RunStatus.RUNNING,
        )
        if not mine.exists():
            self.lost = True
        else:
            self.confirmed_at = asked_at
        self.check()

    def wake(self) -> None:
        self.inbox.put(True)  # not None: that is what a wait that was over gives
        for below in list(self._below):
            below._hear(self)
            below.wake()

    def next(self, until: float | None) -> Any:
        """Return the next finished work, or None at the moment `until` or when there is news."""
        if self.draining_since is not None:
            grace = self.draining_since + runtime_settings().GRACE_SECONDS
            until = grace if until is None else min(until, grace)
        try:
            return self.inbox.get(
                timeout=None if until is None else max(until - time.monotonic(), 0)
            )
        except Empty:
            return None

    @property
    def out_of_grace(self) -> bool:
        """Whether the worker was told to end and its time to finish the step is over."""
        since = self.draining_since
        return since is not None and time.monotonic() >= since + runtime_settings().GRACE_SECONDS

    @property
    def has_news(self) -> bool:
        """Whether `check` would raise: nothing is to be waited for any longer."""
        return self.lost or self.stop_requested or self.out_of_grace

    def check(self) -> None:
        """Raise `LeaseLost` or `Cancelled` if the work is to end where it is."""
        if self.lost:
            raise LeaseLost(run=self.lease.run_id, token=self.lease.fencing_token)
        if self.stop_requested or self.out_of_grace:
            raise Cancelled


class Keeper:
    """Prolongs the leases of this process, and brings back stop requests."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Hold nothing."""
        self._held: dict[uuid.UUID, Control] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._draining_since: float | None = None

    @contextmanager
    def hold(self, lease: Lease) -> Iterator[Control]:
        """Keep `lease` alive for the length of the block."""
        control = Control(lease)
        with self._lock:
            control.draining_since = self._draining_since
            self._held[lease.run_id] = control
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._beat_on, name="agentruntime-keeper", daemon=True
                )
                self._thread.start()
        try:
            yield control
        finally:
            with self._lock:
                if self._held.get(lease.run_id) is control:
                    del self._held[lease.run_id]

    def drain(self) -> None:
        """Let every held run go after its step: the process is about to end."""
        with self._lock:
            if self._draining_since is not None:
                return
            self._draining_since = time.monotonic()
            for control in self._held.values():
                control.draining_since = self._draining_since
                control.wake()

    @property
    def is_draining(self) -> bool:
        """Whether the process is about to end: nothing new is to be claimed."""
        return self._draining_since is not None

    @property
    def is_idle(self) -> bool:
        """Whether no run is held."""
        return not self._held

    def resume(self) -> None:
        """Take up work again after `drain`: a new worker starts in this process."""
        with self._lock:
            self._draining_since = None

    def _beat_on(self) -> None:
        settings = runtime_settings()
        next_beat = time.monotonic() + settings.BEAT_SECONDS
        idle_since = time.monotonic()
        while True:
            time.sleep(settings.STOP_POLL_SECONDS)
            with self._lock:
                held = dict(self._held)
                if held:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > 30:
                    self._thread = None
                    return
            if not held:
                continue
            try:
                if leave_silent_loop():
                    noticed.send(
                        sender=None,
                        level="error",
                        event="an async node or tool blocks the event loop; "
                        "new work gets another one",
                        facts={"runs": sorted(map(str, held))},
                    )
                self.look(held)
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + settings.BEAT_SECONDS
                    self.prolong(held)
            except Exception as error:  # the database is away: beat again when it is back
                noticed.send(
                    sender=None,
                    level="warning",
                    event="keeper beat failed",
                    facts={"error": repr(error)},
                )
            finally:
                connections.close_all()

    def prolong(self, held: dict[uuid.UUID, Control]) -> None:
        """Move the end of the leases on; a row that somebody has locked is left to the next
        beat.
        """
        with transaction.atomic():
            mine = Run.objects.filter(
                pk__in=held, status=RunStatus.RUNNING, lease_owner__startswith=OWNER
            )
            ids = list(
                mine.select_for_update(skip_locked=True).order_by("pk").values_list("pk", flat=True)
            )
            expiry = DatabaseTime(runtime_settings().LEASE_SECONDS)
            Run.objects.filter(pk__in=ids).update(lease_expires_at=expiry)

    def look(self, held: dict[uuid.UUID, Control]) -> None:
        """Tell the claims that were fenced out, and those whose run is to stop."""
        asked_at = time.monotonic()
        rows = Run.objects.filter(pk__in=held).values_list(
            "pk", "fencing_token", "status", "stop_requested_at"
        )
        found = {pk: (token, status, stop) for pk, token, status, stop in rows}
        for run_id, control in held.items():
            token, status, stop = found.get(run_id, (None, None, None))
            if token != control.lease.fencing_token or status != RunStatus.RUNNING:
                if self._held.get(run_id) is control and not control.lost:
                    control.lost = True
                    counted.send(sender=None, name="lease.lost", value=1, attributes={})
                    control.wake()
                continue
            control.confirmed_at = asked_at
            if stop is not None and not control.stop_requested:
                control.stop_requested = True
                control.wake()


keeper = Keeper()


def _forget() -> None:
    _rename()
    keeper.reset()  # a forked process holds nothing


os.register_at_fork(after_in_child=_forget)
