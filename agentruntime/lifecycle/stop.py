"""Somebody wants a run to end now.

A stop that was accepted before the last commit of a run ends it as stopped, whatever that commit
would have made of it: completed, failed, waiting. What its step finished is kept. One that comes
after is refused, for the run has ended: which of the two was first, the lock of the run's row says.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentruntime.exceptions import IllegalTransition
from agentruntime.lifecycle.finish import end_run, ended_already
from agentruntime.lifecycle.history import close_calls_within, close_open_calls, last_turn
from agentruntime.lifecycle.record import StepRecord, writing
from agentruntime.models import Checkpoint, DatabaseTime, Lease, Run, RunStatus
from agentruntime.models.transactions import durably

WHY = "the run was stopped"


def stop_run(*, run_id: uuid.UUID, why: str = WHY) -> Run:
    """Stop a run. One that waits ends at once; one that works is told within a second, and never
    ends otherwise.

    A run that was stopped already is returned as it is. `why` is what the model is told of calls
    that were not run. Raises `RunNotFound`, and
    `IllegalTransition` for a run that ended otherwise.
    """

    def work() -> Run:
        run = Run.locked(run_id)
        if run.status == RunStatus.STOPPED:
            return run
        if run.has_ended:
            raise IllegalTransition(run=run.pk, status=run.status, wanted="stopped")
        if run.status == RunStatus.RUNNING:
            if run.stop_requested_at is None:
                run.save_fields(stop_requested_at=DatabaseTime())
            return run
        stop_locked(run, 0, why=why)
        return run

    return durably(work)


def end_stopped(lease: Lease, unsaved: Sequence[StepRecord] = ()) -> None:
    """End a held run as stopped; what its last turn asked for and did not get is said to be
    cancelled.
    """

    def work() -> None:
        if not ended_already(lease):  # else the commit had landed, only its answer was lost
            stop_locked(Run.held(lease), lease.fencing_token, unsaved)

    durably(work)


def stop_locked(run: Run, token: int, unsaved: Sequence[StepRecord] = (), why: str = WHY) -> None:
    """End a locked run as stopped, with the steps of it that are not stored yet."""
    with writing(run.thread_id, run.pk) as pen:
        if run.is_in_line:  # the open calls of the thread are another run's
            end_run(run, pen, RunStatus.STOPPED)
            return
        for step in unsaved:
            pen.append(step, token)
        recent = [message for step in unsaved for message in step.messages]
        turn = (
            recent
            if any(one.role == "assistant" for one in recent)
            else [*last_turn(run.thread_id), *recent]
        )
        closing = [one.settled(run.thread_id) for one in close_open_calls(run.thread_id, turn, why)]
        if closing:
            state = (
                unsaved[-1].state
                if unsaved
                else _head_state(pen.thread.pk, pen.thread.head_version)
            )
            pen.append(StepRecord("", "__end__", state, closing), token)
        end_run(run, pen, RunStatus.STOPPED)
        close_calls_within(run.pk, why)


def _head_state(thread_id: uuid.UUID, version: int) -> dict[str, object]:
    state: dict[str, object] = Checkpoint.objects.get(thread_id=thread_id, version=version).state
    return state
