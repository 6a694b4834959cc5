"""The calls a model asked for: each its own ledger row, run in parallel, recorded as they return.

Intent, act, record. The intents of a turn are one commit; then every call works by itself; those
that return at the same moment are recorded in one commit. No call that has an outcome is started
again, whoever looks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from agentruntime import executors
from agentruntime.exceptions import Cancelled, NodeTimeout, NoToolCalls, StateConflict, ToolTimeout
from agentruntime.executors import Work
from agentruntime.graph import ToolNode
from agentruntime.graph.context import current_execution
from agentruntime.graph.messages import open_calls
from agentruntime.graph.tools import NOT_DONE, UNKNOWN, Tool
from agentruntime.lifecycle import ledger, settings
from agentruntime.lifecycle.execution import Execution
from agentruntime.lifecycle.history import result_message
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.outcomes import Outcome, as_error, failed, load_delta, succeeded
from agentruntime.lifecycle.policy import with_policy
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Answers
from agentruntime.lifecycle.results import Later, NodeResult, Waiting
from agentruntime.lifecycle.turn import Turn
from agentruntime.lifecycle.watch import earliest, in_seconds, wait_any
from agentruntime.models import CallStatus, DatabaseTime, Run, ToolExecution
from agentruntime.signals import counted


@dataclass
class _Call:
    """One call at work."""

    row: ToolExecution
    tool: Tool
    execution: Execution
    deadline: float | None
    seconds: float | None


def run_tools(
    progress: Progress, name: str, node: ToolNode, control: Control, deadline: float | None
) -> NodeResult | Waiting | Later:
    """Bring the open calls of the last assistant message to their ends, or to a pause.

    Returns their results in call order, or what a person must answer first, or after how many
    seconds a retry is due.
    """
    message, calls = open_calls(progress.state.messages)
    if message is None or not calls:
        raise NoToolCalls(node=name)
    tools = {known: with_policy(tool) for known, tool in node.tools.items()}
    turn = Turn(progress, name, message.id, calls, tools)
    while True:
        turn.look()
        if turn.to_reconcile:
            _find_out(turn, control, deadline)
        elif turn.to_recheck:
            _check_again(turn, control, deadline)
        elif turn.to_start:
            _run_all(turn, control, deadline)
            if turn.is_settled:
                break
        else:
            break
    control.check()
    if turn.questions:
        return Waiting(turn.questions, turn.scopes)
    if turn.retry_in is not None:
        return Later(turn.retry_in)
    return _join(turn)


def _join(turn: Turn) -> NodeResult:
    """The results in call order, and the deltas that they bring, by field."""
    rows = [turn.rows[key] for key in turn.keys]
    deltas: dict[str, list[tuple[str, Any]]] = {}
    kind = turn.progress.graph.state
    for row in rows:
        for name, stored in row.state_update.items():
            deltas.setdefault(name, []).append((row.tool, load_delta(kind, name, stored)))
    return NodeResult(messages=[result_message(row) for row in rows], deltas=deltas)


def refuse_conflicts(
    deltas: dict[str, list[tuple[str, Any]]], has_reducer: Callable[[str], bool]
) -> None:
    """Raise `StateConflict` where calls set one field without a reducer to different values."""
    for name, set_by in deltas.items():
        values = [value for _, value in set_by]
        if not has_reducer(name) and any(value != values[0] for value in values[1:]):
            raise StateConflict(field=name, calls=", ".join(tool for tool, _ in set_by))


def _run_all(turn: Turn, control: Control, node_deadline: float | None) -> None:
    """Run the calls that were started, side by side, until each is recorded or given up."""
    works: dict[Work, _Call] = {}
    for row in turn.to_start:
        call = _prepare(turn, row, node_deadline)
        works[_begin(turn, call, control)] = call
    try:
        while works:
            control.check()
            done, overdue = wait_any(control, {work: call.deadline for work, call in works.items()})
            _take_in(turn, {work: works.pop(work) for work in done})
            if overdue and node_deadline is not None and executors.now() >= node_deadline:
                seconds = settings.node_timeout(turn.progress.run.config)
                raise NodeTimeout(node=turn.node, seconds=seconds or 0)
            for work in overdue:
                _time_out(turn, work, works.pop(work))
    except BaseException:
        _give_up(turn, works)
        raise


def _prepare(turn: Turn, row: ToolExecution, node_deadline: float | None) -> _Call:
    tool = turn.tools[row.tool]
    seconds = (
        tool.timeout
        if tool.timeout is not None
        else settings.tool_timeout(turn.progress.run.config)
    )
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
    return _Call(row, tool, execution, deadline, seconds)


def _begin(turn: Turn, call: _Call, control: Control) -> Work:
    """Start one call where its kind runs: the event loop, a thread, a transaction in a thread."""
    arguments = _arguments(turn, call)
    token = current_execution.set(call.execution)
    try:
        if isinstance(arguments, Exception):
            return executors.start(_raise, control.inbox, arguments)
        if call.tool.is_async:
            return executors.start_async(call.tool.fn, control.inbox, **arguments)
        if call.tool.effect == "transactional":
            return executors.start(_transact, control.inbox, turn, call, arguments)
        return executors.start(call.tool.fn, control.inbox, **arguments)
    finally:
        current_execution.reset(token)


def _arguments(turn: Turn, call: _Call) -> dict[str, Any] | Exception:
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


def _transact(turn: Turn, call: _Call, arguments: dict[str, Any]) -> ToolExecution:
    """Run a transactional call: its effect and its ledger row are one commit."""
    with transaction.atomic(durable=True):
        value = call.tool.fn(**arguments)
        outcome = succeeded(call.tool, turn.progress.graph.state, value)
        lease = turn.progress.lease
        Run.held(lease)
        with ledger.writing(lease.thread_id, lease.run_id) as pen:
            return ledger.settle(pen, call.row, outcome)


def _take_in(turn: Turn, ended: dict[Work, _Call]) -> None:
    """Record what came back, all that came back together in one commit."""
    to_record: list[tuple[ToolExecution, Outcome]] = []
    for work, call in ended.items():
        if call.execution.waits:
            continue  # a question was asked: the pause writes it down
        if isinstance(work.result, ToolExecution):
            turn.rows[call.row.call_key] = work.result
        elif work.error is not None and _retries(call, work.error):
            _plan_retry(call)
        else:
            to_record.append((call.row, read_outcome(turn, call, work)))
    if to_record:
        for row in ledger.record(turn.progress.lease, to_record):
            turn.rows[row.call_key] = row
    for call in ended.values():
        if call.execution.waits:  # the pause opens what it asks
            turn.asked_now[call.row.pk] = call.execution.questions()
            call.row.save_fields(status=CallStatus.INTERRUPTED)


def read_outcome(turn: Turn, call: _Call, work: Work) -> Outcome:
    """Return what a finished work means for its call."""
    if work.error is not None:
        return failed(work.error, call.row.arguments)
    return succeeded(call.tool, turn.progress.graph.state, work.result)


def _retries(call: _Call, error: BaseException) -> bool:
    return isinstance(error, call.tool.retry_on) and call.row.attempts <= call.tool.retries


def _plan_retry(call: _Call) -> None:
    delay = call.tool.retry_delay * 2 ** (call.row.attempts - 1)
    call.row.save_fields(status=CallStatus.PENDING, retry_at=DatabaseTime(delay))


def _time_out(turn: Turn, work: Work, call: _Call) -> None:
    """Give an overdue call up. The model is told, except of a call that must not be guessed
    about.
    """
    counted.send(sender=None, name="tool.timeouts", value=1, attributes={"tool": call.tool.name})
    if not work.give_up(_late(turn, call)):
        _take_in(turn, {work: call})
        return
    error = as_error(ToolTimeout(tool=call.tool.name, seconds=call.seconds or 0))
    if call.tool.effect == "once":
        call.row.save_fields(status=CallStatus.UNKNOWN, error=error)
        return
    status = CallStatus.FAILED if work.can_be_cancelled else CallStatus.UNKNOWN
    turn.rows[call.row.call_key] = ledger.record(
        turn.progress.lease, [(call.row, Outcome(status, error=error))]
    )[0]


def _late(turn: Turn, call: _Call) -> Any:
    return ledger.when_late(
        turn.progress.lease, call.row, lambda work: read_outcome(turn, call, work)
    )


def _give_up(turn: Turn, works: dict[Work, _Call]) -> None:
    """Leave what still works; record what has ended in this very moment."""
    ended = {work: call for work, call in works.items() if not work.give_up(_late(turn, call))}
    _take_in(turn, ended)


def _find_out(turn: Turn, control: Control, deadline: float | None) -> None:
    """Ask the providers what became of calls of unknown outcome."""
    for row in turn.to_reconcile:
        reconcile = turn.tools[row.tool].reconcile
        said = _ask(reconcile, control, deadline, row.arguments, row.call_key)
        if said is NOT_DONE:
            turn.reconciled[row.pk] = "not done"
        elif said is UNKNOWN:
            turn.reconciled[row.pk] = "the provider does not know"
        elif isinstance(said, Exception):
            turn.reconciled[row.pk] = f"asking the provider failed: {type(said).__name__}: {said}"[
                :500
            ]
        else:
            turn.reconciled[row.pk] = succeeded(
                turn.tools[row.tool], turn.progress.graph.state, said
            )


def _check_again(turn: Turn, control: Control, deadline: float | None) -> None:
    """Ask the rules of approved calls whether they still may start."""
    for row in turn.to_recheck:
        tool = turn.tools[row.tool]
        assert tool.approval is not None
        said = _ask(tool.approval.recheck, control, deadline, tool.load_arguments(row.arguments))
        if isinstance(said, Exception):
            said = f"checking it failed ({type(said).__name__}: {said})"
        turn.rechecked[row.pk] = said


def _ask(fn: Any, control: Control, deadline: float | None, *args: Any) -> Any:
    """Call a function of the host and wait for it; an exception is returned, not raised."""
    from inspect import iscoroutinefunction

    begin = executors.start_async if iscoroutinefunction(fn) else executors.start
    work = copy_context().run(begin, fn, control.inbox, *args)
    until = earliest(deadline, in_seconds(30.0))
    while not work.done:
        control.check()
        _, overdue = wait_any(control, {work: until})
        if overdue and work.give_up(lambda _: None):
            return TimeoutError("no answer in time")
    if work.error is not None and not isinstance(work.error, Exception):
        raise Cancelled
    return work.error if work.error is not None else work.result
