"""The one commit that makes steps durable: the hot path of the runtime.

On PostgreSQL a commit is one statement (`models.step_statement`), elsewhere, and where that is
refused, the same by the ORM, which says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction

from agentruntime.conf import runtime_settings
from agentruntime.graph import END
from agentruntime.graph.masking import mask
from agentruntime.lifecycle.finish import end_run
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.record import StepRecord, news_of, rows_of, writing
from agentruntime.lifecycle.stop import stop_locked
from agentruntime.models import Checkpoint, Event, Lease, Run, RunStatus, Thread
from agentruntime.models.step_statement import (
    Added,
    Counters,
    is_supported,
    write_last_steps,
    write_steps,
)
from agentruntime.models.transactions import durably, in_one_statement
from agentruntime.signals import committed, recorded, run_ended


def commit_steps(progress: Progress, steps: Sequence[StepRecord]) -> None:
    """Make steps durable in one transaction; the one that leads to `END` completes the run.

    Raises `LeaseLost` or `StaleState`; then nothing was written, and the caller stops.
    """
    lease, expected = progress.lease, progress.saved_version
    ends = steps[-1].next_node == END
    at_once = is_supported() and not steps[-1].branches
    if at_once and not ends and _append_at_once(lease, expected, steps, _news(steps)):
        return
    may_have_landed = at_once and not ends

    def work() -> None:
        nonlocal may_have_landed
        if may_have_landed and _has_landed(lease, expected + len(steps)):
            return
        may_have_landed = True
        if not (at_once and ends and _end(progress, steps)):
            _commit(lease, expected, steps)

    durably(work)


def _end(progress: Progress, steps: Sequence[StepRecord]) -> bool:
    run = _end_at_once(progress.lease, progress.thread, progress.saved_version, steps)
    if run is not None:
        run_ended.send(sender=Run, run=run)
    return run is not None


def _append_at_once(
    lease: Lease,
    expected: int,
    steps: Sequence[StepRecord],
    events: Sequence[tuple[str, dict[str, Any]]],
) -> bool:
    """Append steps and news in one statement; say whether it was taken.

    It is not if the lease is gone, the head is elsewhere, or an earlier try had landed: the slower
    way says which.
    """
    added = _added_by(steps, events)
    counters = in_one_statement(lambda: write_steps(lease, expected, added))
    if counters is None:
        return False
    committed.send(**_hint(lease, counters, added))
    return True


def _end_at_once(
    lease: Lease, thread: Thread, expected: int, steps: Sequence[StepRecord]
) -> Run | None:
    """Append the last steps and complete the run, in one statement of the current transaction;
    return the run, or None if it was not taken. `thread` is the row as it was claimed.
    """
    added = _added_by(steps, [("run.completed", {"error": None})])
    ended = write_last_steps(lease, expected, added)
    if ended is None:
        return None
    counters, run = ended
    first = counters.event_count - len(added.events) + 1
    events = [
        Event(thread_id=thread.pk, run_id=run.pk, seq=seq, **row)
        for seq, row in enumerate(added.events, first)
    ]
    recorded.send(sender=None, thread=thread, events=events)
    transaction.on_commit(lambda: committed.send(**_hint(lease, counters, added)))
    return run


def _added_by(steps: Sequence[StepRecord], news: Iterable[tuple[str, dict[str, Any]]]) -> Added:
    """What the statement of a step wants to know, with these news behind those of the steps."""
    told: list[tuple[str, dict[str, Any]]] = []
    for step in steps:
        told += [("message.added", news_of(one)) for one in step.messages]
        told.append(("node.finished", {"node": step.node, "next_node": step.next_node}))
    secret = runtime_settings().SECRET_FIELDS
    events = [{"type": kind, "data": mask(data, secret)} for kind, data in (*told, *news)]
    return Added(*rows_of(steps), events)


def _hint(lease: Lease, counters: Counters, added: Added) -> dict[str, Any]:
    return {
        "sender": None,
        "thread_id": lease.thread_id,
        "run_id": lease.run_id,
        "seq": counters.event_count,
        "types": [one["type"] for one in added.events],
    }


def _news(steps: Sequence[StepRecord]) -> list[tuple[str, dict[str, Any]]]:
    return [("node.started", {"node": steps[-1].next_node})]


def _commit(lease: Lease, expected: int, steps: Sequence[StepRecord]) -> None:
    run = Run.held(lease)
    if run.stop_requested_at is not None and steps[-1].next_node == END:
        stop_locked(run, lease.fencing_token, steps)
        return
    with writing(run.thread_id, run.pk) as pen:
        pen.expect(expected)
        for step in steps:
            pen.append(step, lease.fencing_token)
            pen.tell("node.finished", node=step.node, next_node=step.next_node)
        if steps[-1].next_node == END:
            end_run(run, pen, RunStatus.COMPLETED)
        else:
            for kind, data in _news(steps):
                pen.tell(kind, **data)
            if run.attempts:
                run.save_fields(attempts=0)


def _has_landed(lease: Lease, version: int) -> bool:
    return Checkpoint.objects.filter(
        thread_id=lease.thread_id,
        version=version,
        fencing_token=lease.fencing_token,
        run_id=lease.run_id,
    ).exists()
