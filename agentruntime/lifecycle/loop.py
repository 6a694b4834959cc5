"""Node after node, until the run pauses, ends, or its time slice is over."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from agentruntime.bound import bound
from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    Cancelled,
    LeaseLost,
    NodeFailed,
    RecursionLimitReached,
    RunNotFound,
    StaleState,
    StepError,
    ThreadNotFound,
)
from agentruntime.executors import now
from agentruntime.graph import END
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.branches import take
from agentruntime.lifecycle.claim import Claim, claim_run
from agentruntime.lifecycle.commit import commit_steps
from agentruntime.lifecycle.finish import ended_already, fail_run
from agentruntime.lifecycle.lease import Control, keeper
from agentruntime.lifecycle.pause import give_back, pause_run, withdraw
from agentruntime.lifecycle.progress import NOTHING_ASKED, Progress, load_progress
from agentruntime.lifecycle.recording import record_again
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.spending import account_time, check_time
from agentruntime.lifecycle.step import join_result
from agentruntime.lifecycle.stop import end_stopped, stop_locked
from agentruntime.models import Lease, Run
from agentruntime.models.transactions import durably, is_passing, patient
from agentruntime.signals import counted, noticed

LONGEST_OUTAGE_SECONDS = 3600.0
"""How long a process waits for the database in order to give back what it had to leave."""


def execute(run_id: uuid.UUID) -> None:
    """Claim the run and work on it. What goes wrong ends in the run's row, not in the caller.

    Returns at once if the run cannot be claimed. Safe to call any number of times, anywhere. A
    database that is away is waited for; if that takes too long, the run is left to the sweep.
    """
    if keeper.is_draining:
        return
    with patient(runtime_settings().DATABASE_PATIENCE_SECONDS):
        try:
            claim = claim_run(run_id)
        except (DatabaseError, InterfaceError) as error:
            _tell_away({"run": run_id}, error)
            return
        if claim is not None:
            facts = {"run": str(run_id), "thread": str(claim.run.thread_id)}
            with bound(**facts, fencing_token=claim.lease.fencing_token):
                _hold(claim)


def _hold(claim: Claim) -> None:
    with keeper.hold(claim.lease) as control:
        control.stop_requested = claim.run.stop_requested_at is not None
        crash_point("P3")
        try:
            _work(claim, control)
        except (LeaseLost, StaleState, RunNotFound, ThreadNotFound) as error:
            _tell_lost(claim, error)
        except (DatabaseError, InterfaceError) as error:
            _leave(claim, error) if is_passing(error) else _fail(claim, error)
        except Exception as error:
            _fail(claim, error)
        except (SystemExit, KeyboardInterrupt) as error:
            # Of a reducer, a rule or a validator: code of the host that runs in this very thread.
            if threading.current_thread() is threading.main_thread():
                raise  # a person ends the process
            _fail(claim, NodeFailed(node="", kind=type(error).__name__, reason="it wants to exit"))


def _work(claim: Claim, control: Control) -> None:
    progress = load_progress(claim.run, claim.lease, claim.thread, claim.head, claim.newest)
    if claim.is_first:
        progress.claimed_version = NOTHING_ASKED
    try:
        _go_on(progress, control)
    except Cancelled:
        record_again(progress)
        if control.stop_requested or progress.stop_seen:
            crash_point("S1")
            end_stopped(progress.lease, progress.unsaved)
        else:  # told to end: what is finished is kept, the rest is somebody else's
            _save(progress)
            give_back(progress.lease, count_claim=False)
    except StepError:
        record_again(progress)
        _save(progress)
        raise
    except (DatabaseError, InterfaceError) as error:
        if not is_passing(error):
            raise
        _leave(claim, error, progress)
    finally:
        account_time(progress)


def _go_on(progress: Progress, control: Control) -> None:
    slice_ends = now() + runtime_settings().SLICE_SECONDS
    while True:
        control.check()
        if control.draining_since is not None or now() >= slice_ends:
            _save(progress)
            give_back(progress.lease, count_claim=False)
            return
        limit = settings.recursion_limit(progress.run.config)
        if progress.steps >= limit:
            raise RecursionLimitReached(steps=progress.steps, limit=limit, node=progress.next_node)
        check_time(progress)
        if not _step(progress, control):
            return


def _step(progress: Progress, control: Control) -> bool:
    """Do one step; say whether the run goes on in this claim."""
    node = progress.graph.nodes.get(progress.next_node)
    if progress.unsaved and hasattr(node, "tools"):
        _save(progress)  # the answer that asks for calls is durable before any of them runs
    result = take(progress, control)
    if isinstance(result, Waiting):
        unsaved, saved = progress.unsaved, progress.saved_version
        pause_run(progress.lease, result, unsaved, saved)
        progress.unsaved = []
        progress.remember()
        return False
    if isinstance(result, Later):
        _save(progress)
        give_back(progress.lease, result.seconds, count_claim=False, calls=result.calls)
        return False
    step, state = join_result(progress, result)
    if progress.unrecorded:
        record_again(progress)
    if result.leftover:
        withdraw(progress.lease, result.leftover)
    crash_point("P5")
    durable = progress.run.config.get("durable_checkpoint_every_step", True)
    if durable or step.branches or step.next_node == END:
        commit_steps(progress, [*progress.unsaved, step])
        crash_point("P12")
        progress.unsaved = []
        progress.advance(step, state)
    else:
        progress.unsaved.append(step)
        progress.advance(step, state)
        progress.remember_unsaved()
    if step.next_node == END:
        crash_point("P13")
        progress.remember()
        return False
    return True


def _save(progress: Progress) -> None:
    if progress.unsaved:
        commit_steps(progress, progress.unsaved)
        progress.unsaved = []


def _fail(claim: Claim, error: Exception) -> None:
    noticed.send(
        sender=None,
        level="warning" if isinstance(error, StepError) else "error",
        event="run failed",
        facts=_facts(claim, error),
        exc_info=None if isinstance(error, StepError) else error,
    )
    try:
        durably(lambda: _end_failed(claim, error))
    except (LeaseLost, ThreadNotFound) as lost:
        _tell_lost(claim, lost)
    except (DatabaseError, InterfaceError) as away:
        _leave(claim, away)


def _end_failed(claim: Claim, error: Exception) -> None:
    if ended_already(claim.lease):  # the commit had landed, only its answer was lost
        return
    run = Run.held(claim.lease)
    if run.stop_requested_at is not None:
        stop_locked(run, claim.lease.fencing_token)
    else:
        fail_run(run, error)


def _leave(claim: Claim, error: Exception, progress: Progress | None = None) -> None:
    """Let go of a run that cannot be written for now; it goes on from its last commit.

    Where not even that can be written, a thread waits for the database: what calls came to is
    recorded then, and the run given back as if this claim had not been.
    """
    _tell_away(_facts(claim, error), error)
    try:
        with patient(0):
            _record_and_give_back(claim.lease, progress, wake_in=1.0)
    except Exception:
        threading.Thread(target=_give_back_later, args=(claim.lease, progress), daemon=True).start()


def _record_and_give_back(lease: Lease, progress: Progress | None, **how: Any) -> None:
    if progress is not None and progress.unrecorded:
        record_again(progress)
        if progress.unrecorded:
            raise DatabaseError("an outcome cannot be recorded yet")
    give_back(lease, **how)


def _give_back_later(lease: Lease, progress: Progress | None) -> None:
    with suppress(Exception), patient(LONGEST_OUTAGE_SECONDS):
        _record_and_give_back(lease, progress, count_claim=False)
    connections.close_all()


def _tell_away(facts: dict[str, object], error: Exception) -> None:
    noticed.send(
        sender=None,
        level="warning",
        event="the database does not take writes, the run is left to the sweep",
        facts={**facts, "error": f"{type(error).__name__}: {error}"},
    )


def _tell_lost(claim: Claim, error: Exception) -> None:
    name = "stale_state" if isinstance(error, StaleState) else "lease.lost"
    if isinstance(error, StaleState):
        counted.send(sender=None, name=name, value=1, attributes={})
    noticed.send(
        sender=None,
        level="warning",
        event="this worker stops, another has the run",
        facts=_facts(claim, error),
    )


def _facts(claim: Claim, error: BaseException) -> dict[str, object]:
    return {
        "run": claim.run.pk,
        "thread": claim.run.thread_id,
        "fencing_token": claim.lease.fencing_token,
        "error": f"{type(error).__name__}: {error}",
    }
