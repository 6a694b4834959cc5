"""A worker takes the lease of a run that waits; a fencing token comes with it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.exceptions import RunParked
from agentruntime.graph.messages import Message
from agentruntime.lifecycle.finish import fail_run
from agentruntime.lifecycle.lease import OWNER
from agentruntime.lifecycle.record import writing
from agentruntime.models import Checkpoint, DatabaseTime, Lease, Run, RunStatus, Thread
from agentruntime.models.claim_statement import claim_at_once
from agentruntime.models.step_statement import is_supported
from agentruntime.models.transactions import durably, in_one_statement
from agentruntime.signals import committed, counted, noticed


@dataclass(frozen=True)
class Claim:
    """A run that this process holds now: its row as it was claimed, the lease, where its thread
    stands and the newest of its messages, as far as the claim has seen them, and whether nobody
    ever held it before.
    """

    run: Run
    lease: Lease
    thread: Thread | None = None
    head: Checkpoint | None = None
    is_first: bool = False
    newest: Sequence[Message] = ()


def claim_run(run_id: uuid.UUID) -> Claim | None:
    """Take the run if it is claimable, or return None: somebody has it, or there is nothing to do.

    Claims are counted before the work: a run whose claims end without a commit, again and again,
    is parked as failed.
    """
    nonce = f"{OWNER}/{uuid.uuid4().hex[:8]}"
    tries = 0

    def at_once() -> Claim | None:
        nonlocal tries
        tries += 1
        return _claim_at_once(run_id, nonce)

    def work() -> Claim | None:
        nonlocal tries
        tries += 1
        mine = Run.objects.filter(pk=run_id, lease_owner=nonce).first() if tries > 1 else None
        if mine is not None:  # a try before had landed, only the answer to its commit was lost
            return Claim(mine, mine.lease)
        return _claim(run_id, nonce)

    return (in_one_statement(at_once) if is_supported() else None) or durably(work)


def _claim_at_once(run_id: uuid.UUID, owner: str) -> Claim | None:
    settings = runtime_settings()
    found = claim_at_once(run_id, owner, settings.LEASE_SECONDS, settings.MAX_CLAIMS)
    if found is None:
        return None
    run = found.run
    committed.send(
        sender=None,
        thread_id=run.thread_id,
        run_id=run.pk,
        seq=found.thread.event_count,
        types=["run.started" if found.is_first else "run.resumed", "node.started"],
    )
    if found.was_lapsed:
        _tell_recovered(run)
    return Claim(run, run.lease, found.thread, found.head, found.is_first, found.newest)


def _claim(run_id: uuid.UUID, owner: str) -> Claim | None:
    run = Run.objects.select_for_update(skip_locked=True).filter(pk=run_id).claimable().first()
    if run is None:
        return None
    settings = runtime_settings()
    lapsed = run.status == RunStatus.RUNNING
    if run.attempts >= settings.MAX_CLAIMS:
        fail_run(run, RunParked(attempts=run.attempts))
        counted.send(sender=None, name="run.parked", value=1, attributes={"graph": run.graph})
        return None
    changes = {
        "fencing_token": run.fencing_token + 1,
        "lease_owner": owner,
        "lease_expires_at": DatabaseTime(settings.LEASE_SECONDS),
        "attempts": run.attempts + 1,
        "wake_at": None,
    }
    first = run.started_at is None
    if first:
        changes["started_at"] = DatabaseTime()
    if lapsed:
        run.save_fields(**changes)
    else:
        run.move_to(RunStatus.RUNNING, **changes)
    with writing(run.thread_id, run.pk) as pen:
        pen.tell("run.started" if first else "run.resumed", attempt=run.attempts, recovered=lapsed)
        head = Checkpoint.objects.get(thread=run.thread_id, version=pen.thread.head_version)
        pen.tell("node.started", node=head.next_node)
    if lapsed:
        _tell_recovered(run)
    return Claim(run, run.lease, pen.thread, head, first)


def _tell_recovered(run: Run) -> None:
    crash_point("R1")
    counted.send(sender=None, name="run.recovered", value=1, attributes={"graph": run.graph})
    noticed.send(
        sender=None,
        level="warning",
        event="run taken over from a worker that is gone",
        facts={"run": run.pk, "thread": run.thread_id, "fencing_token": run.fencing_token},
    )
