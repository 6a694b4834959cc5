"""Ringing the doorbell: telling some worker that a run waits. May fail; the sweep does not need
it.
"""

from __future__ import annotations

import uuid

import dramatiq
from django.db import transaction

from agentruntime.broker import is_embedded, start_embedded_worker
from agentruntime.conf import runtime_settings
from agentruntime.signals import noticed

ACTOR = "execute_run"


def ring_after_commit(run_id: uuid.UUID) -> None:
    """Tell a worker about a queued run once the current transaction is committed."""
    transaction.on_commit(lambda: ring(run_id))


def ring(run_id: uuid.UUID) -> None:
    """Tell a worker about a queued run now. Never raises: a broker that is down loses nothing."""
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
        noticed.send(
            sender=None,
            level="warning",
            event="doorbell failed",
            facts={"run": str(run_id), "error": repr(error)},
        )
