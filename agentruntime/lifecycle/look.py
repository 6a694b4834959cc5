"""One look at the calls of a turn, in one transaction: what to start, to ask, to find out, to
return.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentruntime.crash import crash_point
from agentruntime.exceptions import Cancelled
from agentruntime.lifecycle import doubt, ledger
from agentruntime.lifecycle.intents import begin_at_once, draft_intent, insert_intents
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.lifecycle.sorting import begun, sort_call, start
from agentruntime.lifecycle.turn import Turn
from agentruntime.models import CallStatus, Interrupt, Run, ToolExecution
from agentruntime.models.transactions import durably
from agentruntime.signals import counted


def look(turn: Turn) -> None:
    """Write the intents that are missing, and decide for every call what is to be done now."""
    crash_point("P6")
    progress = turn.progress
    asked_just_now = turn.is_first_look and progress.version != progress.claimed_version
    # Most turns are either all new or all known: only a turn in between is looked at twice.
    drafts = _drafts(turn, {}) if asked_just_now else []
    turn.marked = set()
    if asked_just_now and _begin_all(turn, drafts):
        return
    tries = 0

    def work() -> bool:
        nonlocal tries
        tries += 1
        return _look(turn, drafts, is_again=tries > 1)

    if not durably(work):
        drafts = _drafts(turn, ledger.rows_by_key(progress.thread.pk, turn.keys))
        durably(work)
    turn.is_first_look = False
    if turn.to_start:
        crash_point("P7")


def _begin_all(turn: Turn, drafts: list[ToolExecution]) -> bool:
    """Start a turn of new calls that nothing stands before, in one statement; say whether it was
    taken.
    """
    if any(_has_a_turn(turn, row) for row in drafts):
        return False
    if not begin_at_once(turn.progress.lease, drafts):
        return False
    turn.look_anew()
    turn.rows = {row.call_key: row for row in drafts}
    for row in drafts:
        if not row.is_settled:
            turn.marked.add(row.pk)
            begun(turn, row)
    turn.is_first_look = False
    crash_point("P7")
    return True


def _look(turn: Turn, drafts: list[ToolExecution], is_again: bool) -> bool:
    """Say whether all calls have their rows; if not, nothing was written."""
    turn.look_anew()
    has_asked = bool(turn.polled)
    run = _held(turn)
    with writing(run.thread_id, run.pk) as pen:
        inserted = _insert(turn, pen, drafts, is_again)
        fresh = set(inserted)
        all_fresh = len(fresh) == len(turn.keys)
        turn.rows = inserted if all_fresh else ledger.rows_by_key(run.thread_id, turn.keys)
        if turn.rows.keys() < set(turn.keys):
            return False
        _keep_unrecorded(turn)
        if turn.is_first_look:
            _replay(turn, pen, fresh)
        asked = _asked(turn)
        for row in list(turn.rows.values()):
            if not row.is_settled:
                sort_call(turn, pen, row, asked.get(row.pk, []))
        # A look that starts nothing is no progress: a claim that dies in it, again and again
        # (a provider that kills whoever asks it), has to be counted.
        if run.attempts and (fresh or turn.to_start or has_asked):
            run.save_fields(attempts=0)
    return True


def _held(turn: Turn) -> Run:
    """Lock the run. Nothing starts once a stop is committed: raises `Cancelled`."""
    run = Run.held(turn.progress.lease)
    if run.stop_requested_at is not None:
        turn.progress.stop_seen = True
        raise Cancelled
    return run


def _drafts(turn: Turn, there: Mapping[str, ToolExecution]) -> list[ToolExecution]:
    """Rows for the calls that have none yet."""
    progress = turn.progress
    return [
        draft_intent(
            call,
            turn.calls,
            turn.tools,
            thread_id=progress.thread.pk,
            run_id=progress.run.pk,
            call_key=key,
            node=turn.node,
            version=progress.version,
        )
        for call, key in zip(turn.calls, turn.keys, strict=True)
        if key not in there
    ]


def _insert(
    turn: Turn, pen: Pen, drafts: list[ToolExecution], is_again: bool
) -> dict[str, ToolExecution]:
    """Insert what is missing, and return it; after a lost answer an earlier try may have landed."""
    keys = [row.call_key for row in drafts]
    there = ledger.rows_by_key(turn.progress.thread.pk, keys) if is_again else {}
    missing = [row for row in drafts if row.call_key not in there]
    at_once = len(drafts) == len(turn.calls) and not any(_has_a_turn(turn, row) for row in drafts)
    started = insert_intents(pen, turn.progress.lease, missing, start=at_once)
    turn.marked |= {row.pk for row in started}
    return {row.call_key: row for row in missing}


def _has_a_turn(turn: Turn, row: ToolExecution) -> bool:
    """Whether a call may have to wait for others, or is not this process's to run."""
    tool = turn.tool_of(row)
    return tool is not None and (
        tool.sequential or tool.concurrency is not None or tool.runs == "client"
    )


def _keep_unrecorded(turn: Turn) -> None:
    """A call that ended, and whose end could not be written, has ended all the same."""
    for row, _ in turn.progress.unrecorded:
        if row.call_key in turn.rows and not turn.rows[row.call_key].is_settled:
            turn.rows[row.call_key] = row


def _asked(turn: Turn) -> dict[int, list[Interrupt]]:
    waiting = [
        row.pk
        for row in turn.rows.values()
        if row.status != CallStatus.PENDING
        and not row.is_settled
        and row.pk not in turn.marked  # started by this very look
    ]
    found: dict[int, list[Interrupt]] = {}
    turn.answers = {}
    if waiting:
        asked = Interrupt.objects.filter(tool_execution__in=waiting)
        for one in asked.order_by("occurrence", "created_at"):
            found.setdefault(one.tool_execution_id or 0, []).append(one)
    turn.was_asked = turn.was_asked or bool(found)
    return found


def _replay(turn: Turn, pen: Pen, fresh: set[str]) -> None:
    """Take the outcomes that are recorded already; one that cannot be read back is none."""
    for key, row in turn.rows.items():
        if not row.is_settled or key in fresh:
            continue
        if not doubt.is_readable(row):
            doubt.reopen(pen, row)
            continue
        counted.send(sender=None, name="tool.replayed", value=1, attributes={"tool": row.tool})
        pen.tell("tool.replayed", **ledger.news_of(row))


def start_more(turn: Turn) -> None:
    """Start the calls that have a place by now, while others of the turn are at work."""
    keys = [row.call_key for row in turn.crowded]
    durably(lambda: _start_more(turn, keys))


def _start_more(turn: Turn, keys: list[str]) -> None:
    turn.to_start, turn.crowded = [], []
    run = _held(turn)
    with writing(run.thread_id, run.pk) as pen:
        for key, row in ledger.rows_by_key(run.thread_id, keys).items():
            turn.rows[key] = row
            if row.pk in turn.marked:  # an earlier try had landed
                turn.to_start.append(row)
            elif row.status == CallStatus.PENDING and row.retry_at is None:
                start(turn, pen, row, counts=True)
            elif not row.is_settled:
                turn.crowded.append(row)
