"""Questions to the host's own functions: what became of a call, whether one still may start."""

from __future__ import annotations

from contextvars import copy_context
from inspect import iscoroutinefunction
from typing import Any

from agentruntime import executors
from agentruntime.exceptions import Cancelled
from agentruntime.graph.tools import NOT_DONE, UNKNOWN
from agentruntime.lifecycle import jobs
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.outcomes import succeeded
from agentruntime.lifecycle.turn import Turn
from agentruntime.lifecycle.watch import earliest, in_seconds, wait_any

ANSWER_SECONDS = 30.0


def find_out(turn: Turn, control: Control, deadline: float | None) -> None:
    """Ask the providers what became of calls of unknown outcome."""
    for row in turn.to_reconcile:
        tool = turn.tools[row.tool]
        said = _ask(tool.reconcile, control, deadline, dict(row.arguments), row.call_key)
        if said is NOT_DONE:
            turn.reconciled[row.pk] = "not done"
        elif said is UNKNOWN:
            turn.reconciled[row.pk] = "the provider does not know"
        elif isinstance(said, Exception):
            why = readable(f"asking the provider failed: {type(said).__name__}: {said}", 500)
            turn.reconciled[row.pk] = why
        else:
            turn.reconciled[row.pk] = succeeded(tool, turn.progress.graph.state, said)


def ask_about_jobs(turn: Turn, control: Control, deadline: float | None) -> None:
    """Ask what has become of the jobs that are due."""
    for row in turn.to_poll:
        assert row.outside is not None
        said = _ask(jobs.question_for(row), control, deadline, row.outside["handle"])
        kind = turn.progress.graph.state
        turn.polled[row.pk] = jobs.read_answer(row, turn.tools[row.tool], kind, said)


def check_again(turn: Turn, control: Control, deadline: float | None) -> None:
    """Ask the rules of approved calls whether they still may start."""
    for row in turn.to_recheck:
        tool = turn.tools[row.tool]
        assert tool.approval is not None
        said = _ask(tool.approval.recheck, control, deadline, tool.load_arguments(row.arguments))
        if isinstance(said, Exception):
            said = f"checking it failed ({type(said).__name__}: {said})"
        elif said is not None and not isinstance(said, str):  # False, say, is not meant as a yes
            said = f"checking it answered a {type(said).__name__}, neither None nor a reason"
        turn.rechecked[row.pk] = said


def _ask(fn: Any, control: Control, deadline: float | None, *args: Any) -> Any:
    """Call a function of the host and wait for it; an exception is returned, not raised."""
    begin = executors.start_async if iscoroutinefunction(fn) else executors.start
    work = copy_context().run(begin, fn, control.inbox, *args)
    until = earliest(deadline, in_seconds(ANSWER_SECONDS))
    while not work.done:
        control.check()
        _, overdue = wait_any(control, {work: until})
        if overdue and work.give_up(lambda _: None):
            return TimeoutError("no answer in time")
    if isinstance(work.error, SystemExit | KeyboardInterrupt):
        return RuntimeError(f"it ended with {type(work.error).__name__}")
    if work.error is not None and not isinstance(work.error, Exception):
        raise Cancelled
    return work.error if work.error is not None else work.result
