"""What is to be done about one call that has no outcome yet: noted in its turn, within a look."""

from __future__ import annotations

from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.exceptions import CallParked, GraphChanged
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import client_calls, doubt, gate, jobs, ledger
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.record import Pen
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.slots import slots
from agentruntime.lifecycle.turn import Turn
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
)
from agentruntime.signals import counted, gated_call_starting

NOT_PRESENT = object()


def sort_call(turn: Turn, pen: Pen, row: ToolExecution, asked: list[Interrupt]) -> None:
    """Sort one unsettled call into what is to be done about it."""
    tool = turn.tool_of(row)
    if tool is None:
        _decide_without_tool(turn, pen, row, asked)
        return
    turn.scopes += _scopes_of(row)
    mine = [one for one in asked if one.kind == InterruptKind.QUESTION]
    turn.answers[row.call_key] = mine
    if row.pk in turn.asked_now:
        turn.questions += turn.asked_now[row.pk]
        turn.scopes += [one.scope for one in turn.asked_now[row.pk]]
        _wait_within(turn, turn.asked_within.get(row.pk))
    elif jobs.is_job(row):
        _decide_job(turn, pen, row)
    elif client_calls.is_with_client(row):
        _decide_handed_over(turn, pen, row, tool, asked)
    elif row.status == CallStatus.PENDING:
        _start_when_due(turn, pen, row)
    elif row.status == CallStatus.INTERRUPTED:
        _decide_interrupted(turn, pen, row, tool, asked, mine)
    else:
        _decide_unknown(turn, pen, row, tool, asked)


def begun(turn: Turn, row: ToolExecution) -> None:
    """Take in a new call that was written as started."""
    turn.scopes += _scopes_of(row)
    turn.answers[row.call_key] = []
    turn.to_start.append(row)


def _scopes_of(row: ToolExecution) -> tuple[str, str, str]:
    return row.call_key, f"{row.call_key}:approval", f"{row.call_key}:outcome"


def _wait_within(turn: Turn, waiting: Waiting | Later | None) -> None:
    if waiting is None:
        return
    turn.elsewhere += waiting.calls
    if isinstance(waiting, Later):
        turn.wait_for(waiting.seconds)
        return
    turn.scopes += waiting.scopes
    if waiting.wake_in is not None:
        turn.wait_for(waiting.wake_in)


def _decide_job(turn: Turn, pen: Pen, row: ToolExecution) -> None:
    """A call that goes on elsewhere: it is asked about when it is due, and never started."""
    said = turn.polled.pop(row.pk, NOT_PRESENT)
    if isinstance(said, Outcome):
        row = ledger.settle(pen, row, said)
        if row.is_settled:
            return
    elif said is NOT_PRESENT and jobs.is_due(row):
        turn.to_poll.append(row)
        return
    if jobs.seconds_left(row) == 0:
        ledger.settle(pen, row, jobs.overdue(row, said if isinstance(said, str) else ""))
        return
    if said is not NOT_PRESENT and row.outside is not None:
        row.save_fields(retry_at=DatabaseTime(row.outside["every"]))
        row.refresh_from_db(fields=["retry_at"])
    turn.elsewhere.append(row.pk)
    turn.wait_for(jobs.seconds_to_wait(row))


def _decide_handed_over(
    turn: Turn, pen: Pen, row: ToolExecution, tool: Tool, asked: list[Interrupt]
) -> None:
    turn.scopes.append(client_calls.scope_of(row))
    standing = client_calls.standing_of(row, tool, asked)
    if isinstance(standing, Outcome):
        ledger.settle(pen, row, standing)
    elif isinstance(standing, Interrupt):
        turn.questions.append(gate.same_question(standing))
    else:
        turn.questions.append(standing)


def _decide_without_tool(turn: Turn, pen: Pen, row: ToolExecution, asked: list[Interrupt]) -> None:
    """The tool went away in a deploy while the call waited: only a no needs nothing of it."""
    answers = [one.answer for one in asked if one.kind == InterruptKind.APPROVAL and one.answer]
    if row.attempts or not answers or answers[-1].get("verdict") == "approve":
        raise GraphChanged(reason=f"its tool {row.tool!r} is gone")
    ledger.settle(pen, row, gate.declined(answers[-1]))


def _start_when_due(turn: Turn, pen: Pen, row: ToolExecution) -> None:
    if row.retry_at is not None:
        left = (row.retry_at - ledger.database_now()).total_seconds()
        if left > 0:
            turn.wait_for(left)
            return
    start(turn, pen, row, counts=True, why="its policy" if row.attempts else "")


def _decide_interrupted(
    turn: Turn,
    pen: Pen,
    row: ToolExecution,
    tool: Tool,
    asked: list[Interrupt],
    mine: list[Interrupt],
) -> None:
    if row.attempts:  # the body asked: it goes on when none of its questions is open
        still = [one for one in mine if one.status == InterruptStatus.OPEN]
        still += _open_memos(turn, row)
        turn.scopes += [one.scope for one in still]
        if still:
            turn.questions += [gate.same_question(one) for one in still]
        else:
            start(turn, pen, row, counts=False, why="answered")
        return
    approvals = [one for one in asked if one.kind == InterruptKind.APPROVAL]
    standing = gate.standing_of(turn.progress, row, tool, approvals)
    if standing.question is not None:
        turn.questions.append(standing.question)
    elif standing.refused is not None:
        ledger.settle(pen, row, standing.refused)
    elif standing.allowed is not None:
        _start_approved(turn, pen, row, tool, standing.allowed)


def _start_approved(
    turn: Turn, pen: Pen, row: ToolExecution, tool: Tool, allowed: Interrupt
) -> None:
    if _still_allowed(turn, pen, row, tool, allowed):
        crash_point("A5")
        start(turn, pen, row, counts=True)


def _still_allowed(
    turn: Turn, pen: Pen, row: ToolExecution, tool: Tool, allowed: Interrupt
) -> bool:
    """Whether the yes still counts at this moment; asked before every start, also a repeated
    one. A no settles the call, a check that is still to be made does not.
    """
    rule = tool.approval
    if rule is not None and rule.recheck is not None and row.pk not in turn.rechecked:
        turn.to_recheck.append(row)
        return False
    why = turn.rechecked.get(row.pk)
    for _, answer in gated_call_starting.send(
        sender=ToolExecution, execution=row, interrupt=allowed
    ):
        why = why or answer
    if why:
        ledger.settle(pen, row, gate.refused(str(why), is_first=not row.attempts))
    return not why


def _open_memos(turn: Turn, row: ToolExecution) -> list[Interrupt]:
    """The questions about steps that the body of this call marked with `once()`."""
    asked = Interrupt.objects.filter(
        run_id=row.run_id,
        kind=InterruptKind.OUTCOME,
        status=InterruptStatus.OPEN,
        scope__startswith=f"{row.call_key}:once:",
    )
    return list(asked)


def _decide_unknown(
    turn: Turn, pen: Pen, row: ToolExecution, tool: Tool, asked: list[Interrupt]
) -> None:
    """A call that was started, by a worker that is gone or given up, and has no outcome."""
    if row.pk in turn.marked:  # this look had landed, only the answer to COMMIT was lost
        turn.to_start.append(row)
        return
    found = turn.reconciled.get(row.pk, NOT_PRESENT)
    answer = doubt.answer_about(row)
    if isinstance(found, Outcome):
        ledger.settle(pen, row, found)
    elif answer is not None and answer["outcome"] != "retry":
        ledger.settle(pen, row, doubt.told_outcome(answer))
    elif answer is not None or found == "not done" or _may_repeat(turn, row, tool):
        told = answer is not None
        _start_again(turn, pen, row, tool, asked, told=told, is_not_done=found == "not done")
    elif still := [one for one in asked if one.status == InterruptStatus.OPEN]:
        turn.questions += [gate.same_question(one) for one in still]
    elif tool.reconcile is not None and found is NOT_PRESENT:
        turn.to_reconcile.append(row)
    else:
        ledger.settle(pen, row, Outcome(CallStatus.UNKNOWN, error=row.error))
        said = found if isinstance(found, str) else ""
        turn.questions.append(doubt.outcome_question(row, said))


def _may_repeat(turn: Turn, row: ToolExecution, tool: Tool) -> bool:
    if tool.effect == "transactional":
        return row.status == CallStatus.RUNNING  # its row would say so if it had happened
    return tool.effect == "repeatable" and doubt.within_key_window(row, tool.key_ttl)


def _start_again(
    turn: Turn,
    pen: Pen,
    row: ToolExecution,
    tool: Tool,
    asked: list[Interrupt],
    *,
    told: bool,
    is_not_done: bool,
) -> None:
    spent = row.attempts - row.forgiven_attempts
    if spent >= runtime_settings().MAX_CALL_ATTEMPTS and not told:
        counted.send(sender=None, name="run.parked", value=1, attributes={"tool": row.tool})
        raise CallParked(tool=row.tool, attempts=row.attempts)
    allowed = gate.last_yes(asked) if row.is_gated else None
    if allowed is not None and not _still_allowed(turn, pen, row, tool, allowed):
        return
    turn.reconciled.pop(row.pk, None)  # what was said is about the attempt before
    why = "a person" if told else "its provider" if is_not_done else "the same key"
    start(turn, pen, row, counts=True, why=why)


def start(turn: Turn, pen: Pen, row: ToolExecution, *, counts: bool, why: str = "") -> None:
    """Mark a call as started, where it is its turn and its tool has a place for it."""
    tool = turn.tool_of(row)
    if tool is not None and tool.sequential and turn.to_start:
        return  # it has its turn when the others are done
    if any((one := turn.tool_of(other)) and one.sequential for other in turn.to_start):
        return
    if tool is not None and not slots.take(tool, row.pk):
        turn.crowded.append(row)
        return
    ledger.mark_started(pen, turn.progress.lease, row, counts=counts, why=why)
    if tool is not None and tool.runs == "client":
        row.save_fields(outside=client_calls.OUTSIDE)
        _decide_handed_over(turn, pen, row, tool, [])
        return
    turn.marked.add(row.pk)
    turn.to_start.append(row)
