"""Ringing the doorbell: telling some worker that a run waits. May fail; the sweep does not need
it.
"""

from __future__ import annotations

import threading
import time
import uuid

import dramatiq
from django.db import transaction

from agentruntime.broker import is_embedded, start_embedded_worker
from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.signals import noticed

ACTOR = "execute_run"
SILENT_SECONDS = 2.0
"""How long nobody rings after the broker did not take a message: requests do not wait for it."""
LONGEST_TIMER = 60.0

_silent_until = 0.0


def ring_after_commit(run_id: uuid.UUID) -> None:
    """Tell a worker about a queued run once the current transaction is committed."""

    def work() -> None:
        crash_point("P1")
        ring(run_id)
        crash_point("P2")

    transaction.on_commit(work)


def ring_later(run_id: uuid.UUID, seconds: float) -> None:
    """Tell a worker about a run once it is due, if this process is still there; else the sweep
    does.
    """
    if seconds > LONGEST_TIMER:
        return

    def begin() -> None:
        timer = threading.Timer(seconds + 0.02, ring, (run_id,))
        timer.daemon = True
        timer.start()

    transaction.on_commit(begin)


def ring(run_id: uuid.UUID) -> None:
    """Tell a worker about a queued run now. Never raises: a broker that is down loses nothing."""
    global _silent_until
    if time.monotonic() < _silent_until:
        return
    message: dramatiq.Message[None] = dramatiq.Message(
        queue_name=runtime_settings().QUEUE_NAME,
        actor_name=ACTOR,
        args=(str(run_id),),
        kwargs={},
        options={},
    )
    try:
        if is_embedded():
            start_embedded_worker()
        dramatiq.get_broker().enqueue(message)
    except Exception as error:  # whatever a broker raises, the run is in the database
        _silent_until = time.monotonic() + SILENT_SECONDS
        noticed.send(
            sender=None,
            level="warning",
            event="doorbell failed",
            facts={"run": str(run_id), "error": repr(error)},
        )
