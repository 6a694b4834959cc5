"""The calls a model asked for: each its own ledger row, run in parallel, recorded as they return.

Intent, act, record. The intents of a turn are one commit; then every call works by itself; those
that return at the same moment are recorded in one commit. No call that has an outcome is started
again, whoever looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentruntime import executors
from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    LeaseLost,
    NodeTimeout,
    NoToolCalls,
    StateConflict,
    StepError,
    ToolTimeout,
)
from agentruntime.executors import Work
from agentruntime.graph import ToolNode
from agentruntime.graph.messages import open_calls
from agentruntime.lifecycle import ledger, settings
from agentruntime.lifecycle.acting import Acting, begin, may_retry, prepare, read_outcome
from agentruntime.lifecycle.history import result_message
from agentruntime.lifecycle.inquiry import ask_about_jobs, check_again, find_out
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.look import look, start_more
from agentruntime.lifecycle.outcomes import Outcome, as_error, load_delta
from agentruntime.lifecycle.policy import with_policy
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.recording import record, when_late
from agentruntime.lifecycle.results import Later, NodeResult, Waiting
from agentruntime.lifecycle.slots import slots
from agentruntime.lifecycle.turn import Turn
from agentruntime.lifecycle.watch import earliest, in_seconds, wait_any
from agentruntime.models import CallStatus, DatabaseTime, ToolExecution
from agentruntime.models.transactions import give_back_connection
from agentruntime.signals import counted

TIMED_OUT_IN_DOUBT = "whether it took effect is not known"
LONGEST_DELAY = 86_400.0
"""How many seconds a retry is put off at most, however often it was doubled."""


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
    with slots.heard_by(control):
        try:
            _bring_to_rest(turn, control, deadline)
        finally:
            slots.release({row.pk for row in turn.rows.values()})
    control.check()
    if turn.questions:
        return Waiting(turn.questions, turn.scopes, wake_in=turn.retry_in, calls=turn.elsewhere)
    if turn.retry_in is not None:
        return Later(turn.retry_in, calls=turn.elsewhere)
    return _join(turn)


def _bring_to_rest(turn: Turn, control: Control, deadline: float | None) -> None:
    """Do what there is to do about the calls, until each has its outcome or waits."""
    while True:
        look(turn)
        if turn.to_start:  # always first: these are marked as running
            _run_all(turn, control, deadline)
            if turn.is_settled:
                break
        elif turn.to_reconcile:
            find_out(turn, control, deadline)
        elif turn.to_recheck:
            check_again(turn, control, deadline)
        elif turn.to_poll:
            ask_about_jobs(turn, control, deadline)
        elif turn.crowded:
            _wait_for_a_place(turn, control, deadline)
        else:
            break


def _wait_for_a_place(turn: Turn, control: Control, deadline: float | None) -> None:
    """Wait until other runs of this process leave a place free; holds no connection meanwhile."""
    give_back_connection()
    while not any((tool := turn.tool_of(row)) and slots.is_free(tool) for row in turn.crowded):
        control.check()
        if deadline is not None and executors.now() >= deadline:
            seconds = settings.node_timeout(turn.progress.run.config)
            raise NodeTimeout(node=turn.node, seconds=seconds or 0)
        control.next(earliest(deadline, in_seconds(1.0)))
    control.check()


def _join(turn: Turn) -> NodeResult:
    """The results in call order, and the deltas that they bring, by field."""
    rows = [turn.rows[key] for key in turn.keys]
    deltas: dict[str, list[tuple[str, Any]]] = {}
    kind = turn.progress.graph.state
    for row in rows:
        for name, stored in row.state_update.items():
            deltas.setdefault(name, []).append((row.tool, load_delta(kind, name, stored)))
    messages = [result_message(row) for row in rows]
    leftover = tuple(turn.scopes) if turn.was_asked else ()
    succeeded = [turn.tool_of(row) for row in rows if row.status == CallStatus.SUCCEEDED]
    goto = next((tool.handoff for tool in succeeded if tool is not None and tool.handoff), "")
    return NodeResult(messages=messages, deltas=deltas, leftover=leftover, goto=goto)


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
    works: dict[Work, Acting] = {}
    try:
        _begin_all(turn, works, control, node_deadline)
        while works:
            control.check()
            done, overdue = wait_any(control, {work: call.deadline for work, call in works.items()})
            _take_in(turn, {work: works.pop(work) for work in done})
            if overdue and node_deadline is not None and executors.now() >= node_deadline:
                seconds = settings.node_timeout(turn.progress.run.config)
                raise NodeTimeout(node=turn.node, seconds=seconds or 0)
            for work in overdue:
                _time_out(turn, work, works.pop(work))
            if turn.crowded:
                at_work = {call.row.pk for call in works.values()}
                slots.release({row.pk for row in turn.rows.values()} - at_work)
                if turn.may_start_more:
                    start_more(turn)
                    _begin_all(turn, works, control, node_deadline)
        if turn.failed_within:
            raise turn.failed_within[0]
    except BaseException:
        _give_up(turn, works)
        raise
    crash_point("P11")


def _begin_all(
    turn: Turn, works: dict[Work, Acting], control: Control, node_deadline: float | None
) -> None:
    for row in turn.to_start:
        control.confirm()
        call = prepare(turn, row, node_deadline)
        works[begin(turn, call, control)] = call


def _take_in(turn: Turn, ended: dict[Work, Acting]) -> None:
    """Record what came back, all that came back together in one commit."""
    if ended:
        crash_point("P10")
    to_record: list[tuple[ToolExecution, Outcome]] = []
    for work, call in ended.items():
        if call.execution.waits or (call.tool.agent is not None and work.error is not None):
            continue
        if isinstance(work.result, ToolExecution):
            turn.rows[call.row.call_key] = work.result
        elif work.error is not None and may_retry(call, work.error):
            _plan_retry(turn, call)
        elif (outcome := read_outcome(turn, call, work)) is not None:
            to_record.append((call.row, outcome))
    if to_record:
        for row in record(turn.progress, to_record):
            turn.rows[row.call_key] = row
    _note_questions(turn, ended)
    _note_failures(turn, ended)
    lost = [work.error for work in ended if isinstance(work.error, LeaseLost)]
    if lost:
        raise lost[0]


def _note_questions(turn: Turn, ended: dict[Work, Acting]) -> None:
    """Keep what was asked for the pause, which opens it; until then the rows say that they wait."""
    for call in ended.values():
        if isinstance(inner := call.execution.inner, Later):
            turn.asked_now[call.row.pk], turn.asked_within[call.row.pk] = [], inner
            ledger.put_back(turn.progress.lease, call.row, status=CallStatus.PENDING)
        elif call.execution.waits:
            turn.asked_now[call.row.pk] = call.execution.questions()
            turn.was_asked = True
            if inner is not None:
                turn.asked_within[call.row.pk] = inner
            ledger.put_back(turn.progress.lease, call.row, status=CallStatus.INTERRUPTED)


def _note_failures(turn: Turn, ended: dict[Work, Acting]) -> None:
    """What goes wrong in an agent goes wrong with the run, once its siblings have come to their
    ends: a retry goes on at the agent's step. That all must end is said at once.
    """
    for work, call in ended.items():
        if call.tool.agent is None or work.error is None:
            continue
        if not isinstance(work.error, StepError):
            raise work.error
        turn.failed_within.append(work.error)
        ledger.put_back(turn.progress.lease, call.row, status=CallStatus.PENDING)


def _plan_retry(turn: Turn, call: Acting) -> None:
    delay = min(call.tool.retry_delay * 2.0 ** (call.row.attempts - 1), LONGEST_DELAY)
    ledger.put_back(
        turn.progress.lease, call.row, status=CallStatus.PENDING, retry_at=DatabaseTime(delay)
    )


def _time_out(turn: Turn, work: Work, call: Acting) -> None:
    """Give an overdue call up. The model is told, except of a call that must not be guessed
    about: then the provider is asked, or a person.
    """
    counted.send(sender=None, name="tool.timeouts", value=1, attributes={"tool": call.tool.name})
    if not work.give_up(_late(turn, call)):
        _take_in(turn, {work: call})
        return
    error = as_error(ToolTimeout(tool=call.tool.name, seconds=call.seconds or 0))
    if call.tool.effect == "transactional":  # its commit is refused from now on
        error["detail"] = error["detail"].replace(TIMED_OUT_IN_DOUBT, "it was rolled back")
    status = CallStatus.UNKNOWN if call.tool.effect == "once" else CallStatus.FAILED
    row = record(turn.progress, [(call.row, Outcome(status, error=error))])[0]
    turn.rows[row.call_key] = row


def _late(turn: Turn, call: Acting) -> Callable[[Work], None]:
    def read(work: Work) -> Outcome | None:
        if call.tool.agent is not None and (work.error is not None or call.execution.waits):
            return None  # it goes on at its own step, with whoever takes the call over
        return read_outcome(turn, call, work)

    return when_late(turn.progress.lease, call.row, read)


def _give_up(turn: Turn, works: dict[Work, Acting]) -> None:
    """Leave what still works; record what has ended in this very moment."""
    ended = {work: call for work, call in works.items() if not work.give_up(_late(turn, call))}
    _take_in(turn, ended)
