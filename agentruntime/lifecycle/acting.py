"""One call at work: where it runs, what it is given, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import IncompleteRead
from typing import Any

from django.db import DatabaseError, InterfaceError, connection, transaction

from agentruntime import executors
from agentruntime.exceptions import LeaseLost, ResultNotStorable
from agentruntime.executors import Work
from agentruntime.graph.context import current_execution
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import ledger, settings
from agentruntime.lifecycle.execution import Execution
from agentruntime.lifecycle.isolation import Alone, ProcessDied, RaisedThere
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.outcomes import Outcome, failed, succeeded
from agentruntime.lifecycle.questions import Answers
from agentruntime.lifecycle.record import writing
from agentruntime.lifecycle.turn import Turn
from agentruntime.lifecycle.watch import earliest, in_seconds
from agentruntime.models import CallStatus, Run, ToolExecution
from agentruntime.models.transactions import CONFLICT_TRIES, is_passing

# The request may have been carried out: the connection broke, or time was up, before the answer.
# By name where the library need not be installed.
BROKEN_OFF = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)
BROKEN_OFF_NAMES = {
    "httpx": {"ReadError", "ReadTimeout", "RemoteProtocolError", "WriteError", "WriteTimeout"},
    "requests": {"ConnectionError", "ReadTimeout", "ChunkedEncodingError"},
}


@dataclass
class Acting:
    """One call at work."""

    row: ToolExecution
    tool: Tool
    execution: Execution
    deadline: float | None
    seconds: float | None


def prepare(turn: Turn, row: ToolExecution, node_deadline: float | None) -> Acting:
    """Return a call that was marked as started, with its deadline and its context."""
    tool = turn.tools[row.tool]
    seconds = (
        tool.timeout
        if tool.timeout is not None
        else settings.tool_timeout(turn.progress.run.config)
    )
    if tool.agent is not None:  # its nodes and tools have deadlines of their own
        node_deadline = None
    deadline = earliest(in_seconds(seconds if seconds and seconds > 0 else None), node_deadline)
    answers = Answers(row.call_key, turn.answers.get(row.call_key, []), tool_execution_id=row.pk)
    execution = Execution(
        turn.progress,
        turn.node,
        answers,
        idempotency_key=row.call_key,
        attempt=row.attempts,
        deadline=deadline,
    )
    return Acting(row, tool, execution, deadline, seconds)


def begin(turn: Turn, call: Acting, control: Control) -> Work:
    """Start a call where its kind runs: the event loop, a thread, a transaction in a thread, a
    process.
    """
    arguments = _arguments(turn, call)
    token = current_execution.set(call.execution)
    try:
        if isinstance(arguments, Exception):
            return executors.start(_raise, control.inbox, arguments)
        if call.tool.agent is not None:
            inner = control.branch()
            work = executors.start(turn.progress.run_agent, control.inbox, turn, call, inner)
            work.on_cancel(inner.abandon)
            return work
        if call.tool.isolation == "process":
            alone = Alone(call.tool, turn.progress.state, call.execution, call.row.arguments)
            return alone.start(control.inbox)
        if call.tool.is_async:
            return executors.start_async(call.tool.fn, control.inbox, **arguments)
        if call.tool.effect == "transactional":
            return executors.start(_transact, control.inbox, turn, call, arguments)
        return executors.start(call.tool.fn, control.inbox, **arguments)
    finally:
        current_execution.reset(token)


def _arguments(turn: Turn, call: Acting) -> dict[str, Any] | Exception:
    try:
        arguments = call.tool.load_arguments(call.row.arguments)
    except Exception as error:  # stored under another schema: the model is told
        return error
    given = {
        "ctx": call.execution,
        "tool_call_id": call.row.tool_call_id,
        "idempotency_key": call.row.call_key,
    }
    if "state" in call.tool.injected:
        given["state"] = turn.progress.state.model_copy(deep=True)
    return {**arguments, **{name: given[name] for name in call.tool.injected}}


def _raise(error: Exception) -> None:
    raise error


def _transact(turn: Turn, call: Acting, arguments: dict[str, Any]) -> ToolExecution:
    """Run a transactional call: its effect and its ledger row are one commit.

    It is run again after a conflict or a lost connection, for then nothing of it is there; unless
    only the answer to COMMIT was lost, which its row tells.
    """
    for attempt in range(1, CONFLICT_TRIES + 1):
        try:
            return _transact_once(turn, call, arguments)
        except (DatabaseError, InterfaceError) as error:
            if attempt == CONFLICT_TRIES or not is_passing(error):
                raise
            connection.close()
            call.execution.begin_again()
    raise AssertionError("unreachable")


def _transact_once(turn: Turn, call: Acting, arguments: dict[str, Any]) -> ToolExecution:
    lease = turn.progress.lease
    with transaction.atomic(durable=True):
        there = ToolExecution.objects.get(pk=call.row.pk)
        if there.is_settled:
            return there
        value = call.tool.fn(**arguments)
        outcome = succeeded(call.tool, turn.progress.graph.state, value)
        Run.held(lease)
        with writing(lease.thread_id, lease.run_id) as pen:
            mine = {"fencing_token": lease.fencing_token, "attempts": call.row.attempts}
            row = ledger.settle(pen, call.row, outcome, status=CallStatus.RUNNING, **mine)
            if row is not call.row:  # given up meanwhile: what it did is undone
                raise LeaseLost(run=lease.run_id, token=lease.fencing_token)
            return row


def read_outcome(turn: Turn, call: Acting, work: Work) -> Outcome | None:
    """Return what a finished work means for its call; None for what says nothing about it."""
    error = work.error
    if error is None:
        if isinstance(work.result, Outcome):
            return work.result
        if isinstance(work.result, ToolExecution):
            return None  # a transactional call has written its row itself
        return succeeded(call.tool, turn.progress.graph.state, work.result)
    if isinstance(error, LeaseLost):
        return None
    outcome = failed(error, call.row.arguments)
    if isinstance(error, ProcessDied) or (call.tool.effect == "once" and is_in_doubt(error)):
        return Outcome(CallStatus.UNKNOWN, error=outcome.error)
    return outcome


def is_in_doubt(error: BaseException) -> bool:
    """Say whether an error leaves open whether the request was carried out."""
    for one in (error, error.__cause__):
        if isinstance(one, (*BROKEN_OFF, IncompleteRead)):
            return True
        if isinstance(one, RaisedThere) and one.is_a(BROKEN_OFF):
            return True
        for kind in type(one).__mro__:
            if kind.__name__ in BROKEN_OFF_NAMES.get(kind.__module__.partition(".")[0], ()):
                return True
    return False


def may_retry(call: Acting, error: BaseException) -> bool:
    """Say whether the tool's own policy starts the call again after this error."""
    if call.row.attempts - call.row.forgiven_attempts > call.tool.retries:
        return False
    if isinstance(error, LeaseLost | ResultNotStorable) or (
        call.tool.effect == "once" and is_in_doubt(error)
    ):
        return False
    if isinstance(error, RaisedThere):
        return error.is_a(call.tool.retry_on) or Exception in call.tool.retry_on
    return isinstance(error, call.tool.retry_on) and not isinstance(error, ProcessDied)
