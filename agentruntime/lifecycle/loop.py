"""Node after node, until the run pauses, ends, or its time slice is over."""

from __future__ import annotations

import uuid

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import (
    Cancelled,
    LeaseLost,
    RecursionLimitReached,
    RunNotFound,
    StaleState,
    StepError,
    ThreadNotFound,
)
from agentruntime.executors import now
from agentruntime.graph import END
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.claim import Claim, claim_run
from agentruntime.lifecycle.finish import fail_run
from agentruntime.lifecycle.lease import Control, keeper
from agentruntime.lifecycle.pause import give_back, pause_run
from agentruntime.lifecycle.progress import Progress, load_progress
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.step import commit_steps, join_result, take_step
from agentruntime.lifecycle.stop import end_stopped
from agentruntime.models import Run
from agentruntime.models.transactions import durably
from agentruntime.signals import counted, noticed


def execute(run_id: uuid.UUID) -> None:
    """Claim the run and work on it. What goes wrong ends in the run's row, not in the caller.

    Returns at once if the run cannot be claimed. Safe to call any number of times, anywhere.
    """
    claim = claim_run(run_id)
    if claim is None:
        return
    with keeper.hold(claim.lease) as control:
        control.stop_requested = claim.run.stop_requested_at is not None
        try:
            _work(claim, control)
        except (LeaseLost, StaleState, RunNotFound, ThreadNotFound) as error:
            _tell_lost(claim, error)
        except Exception as error:
            _fail(claim, error)


def _work(claim: Claim, control: Control) -> None:
    progress = load_progress(claim.run, claim.lease)
    try:
        _go_on(progress, control)
    except Cancelled:
        if control.stop_requested:
            end_stopped(progress.lease, progress.unsaved)
        else:  # told to end, and out of grace
            give_back(progress.lease, count_claim=False)
    except StepError:
        if progress.unsaved:
            commit_steps(progress.lease, progress.saved_version, progress.unsaved)
        raise


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
            raise RecursionLimitReached(steps=progress.steps, node=progress.next_node)
        if not _step(progress, control):
            return


def _step(progress: Progress, control: Control) -> bool:
    """Do one step; say whether the run goes on in this claim."""
    node = progress.graph.nodes.get(progress.next_node)
    if progress.unsaved and hasattr(node, "tools"):
        _save(progress)  # the answer that asks for calls is durable before any of them runs
    result = take_step(progress, control)
    if isinstance(result, Waiting):
        unsaved, saved = progress.unsaved, progress.saved_version
        pause_run(progress.lease, result.questions, result.scopes, unsaved, saved)
        progress.unsaved = []
        progress.remember()
        return False
    if isinstance(result, Later):
        _save(progress)
        give_back(progress.lease, wake_in=result.seconds)
        return False
    step, state = join_result(progress, result)
    durable = progress.run.config.get("durable_checkpoint_every_step", True)
    if durable or step.next_node == END:
        commit_steps(progress.lease, progress.saved_version, [*progress.unsaved, step])
        progress.unsaved = []
        progress.advance(step, state)
    else:
        progress.unsaved.append(step)
        progress.advance(step, state)
        progress.remember_unsaved()
    if step.next_node == END:
        progress.remember()
        return False
    return True


def _save(progress: Progress) -> None:
    if progress.unsaved:
        commit_steps(progress.lease, progress.saved_version, progress.unsaved)
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
        durably(lambda: fail_run(Run.held(claim.lease), error))
    except (LeaseLost, ThreadNotFound) as lost:
        _tell_lost(claim, lost)


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
