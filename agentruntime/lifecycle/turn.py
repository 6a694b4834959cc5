"""One look at the calls of a turn, in one transaction: what to start, to ask, to find out, to
return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    CallParked,
    Cancelled,
    GraphChanged,
    StepError,
)
from agentruntime.graph.messages import ToolCall
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import client_calls, doubt, gate, jobs, ledger
from agentruntime.lifecycle.history import call_key
from agentruntime.lifecycle.intents import draft_intent, insert_intents
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.slots import slots
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    Run,
    ToolExecution,
)
from agentruntime.models.transactions import durably
from agentruntime.signals import counted, gated_call_starting

NOT_PRESENT = object()


@dataclass
class Turn:
    """The calls of one assistant message, in order, and what is to be done about them now."""

    progress: Progress
    node: str
    message_id: str
    calls: list[ToolCall]
    tools: Mapping[str, Tool]
    rows: dict[str, ToolExecution] = field(default_factory=dict)
    to_start: list[ToolExecution] = field(default_factory=list)
    to_reconcile: list[ToolExecution] = field(default_factory=list)
    to_recheck: list[ToolExecution] = field(default_factory=list)
    to_poll: list[ToolExecution] = field(default_factory=list)
    crowded: list[ToolExecution] = field(default_factory=list)
    """Calls that wait for one of their tool's places in this process."""
    elsewhere: list[int] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    retry_in: float | None = None
    answers: dict[str, list[Interrupt]] = field(default_factory=dict)
    asked_now: dict[int, list[Question]] = field(default_factory=dict)
    asked_within: dict[int, Waiting | Later] = field(default_factory=dict)
    """What the agents that calls ask wait for."""
    failed_within: list[StepError] = field(default_factory=list)
    """What went wrong in agents that calls ask."""
    rechecked: dict[int, str | None] = field(default_factory=dict)
    reconciled: dict[int, Any] = field(default_factory=dict)
    polled: dict[int, Any] = field(default_factory=dict)
    is_first_look: bool = True
    was_asked: bool = False
    """Whether any of the calls has asked something, now or before."""
    _marked: set[int] = field(default_factory=set)

    @property
    def keys(self) -> list[str]:
        return [call_key(self.message_id, call.id) for call in self.calls]

    @property
    def is_settled(self) -> bool:
        """Whether every call has its outcome."""
        return all(row.is_settled for row in self.rows.values())

    def tool_of(self, row: ToolExecution) -> Tool | None:
        return self.tools.get(row.tool)

    def look(self) -> None:
        """Write the intents that are missing, and decide for every call what is to be done now."""
        crash_point("P6")
        drafts = self._drafts()
        self._marked = set()
        tries = 0

        def work() -> None:
            nonlocal tries
            tries += 1
            self._look(drafts, is_again=tries > 1)

        durably(work)
        self.is_first_look = False
        if self.to_start:
            crash_point("P7")

    def _drafts(self) -> list[ToolExecution]:
        """Rows for the calls that have none yet."""
        progress = self.progress
        asked_just_now = self.is_first_look and progress.version != progress.claimed_version
        there = {} if asked_just_now else ledger.rows_by_key(progress.thread.pk, self.keys)
        return [
            draft_intent(
                call,
                self.calls,
                self.tools,
                thread_id=progress.thread.pk,
                run_id=progress.run.pk,
                call_key=key,
                node=self.node,
                version=progress.version,
            )
            for call, key in zip(self.calls, self.keys, strict=True)
            if key not in there
        ]

    def _look(self, drafts: list[ToolExecution], is_again: bool) -> None:
        self.to_start, self.to_reconcile, self.to_recheck = [], [], []
        self.questions, self.scopes, self.retry_in = [], [], None
        self.to_poll, self.elsewhere, self.crowded = [], [], []
        has_asked = bool(self.polled)
        run = Run.held(self.progress.lease)
        if run.stop_requested_at is not None:  # nothing starts once that is committed
            self.progress.stop_seen = True
            raise Cancelled
        with writing(run.thread_id, run.pk) as pen:
            fresh = self._insert(pen, drafts, is_again)
            self.rows = ledger.rows_by_key(run.thread_id, self.keys)
            self._keep_unrecorded()
            if self.is_first_look:
                self._replay(pen, fresh)
            asked = self._asked()
            for row in list(self.rows.values()):
                if not row.is_settled:
                    self._decide(pen, row, asked.get(row.pk, []))
            # A look that starts nothing is no progress: a claim that dies in it, again and again
            # (a provider that kills whoever asks it), has to be counted.
            if run.attempts and (fresh or self.to_start or has_asked):
                run.save_fields(attempts=0)

    def _insert(self, pen: Pen, drafts: list[ToolExecution], is_again: bool) -> set[str]:
        """Insert what is missing; after a lost answer an earlier try may have landed."""
        keys = [row.call_key for row in drafts]
        there = ledger.rows_by_key(self.progress.thread.pk, keys) if is_again else {}
        missing = [row for row in drafts if row.call_key not in there]
        at_once = len(drafts) == len(self.calls) and not any(map(self._has_a_turn, drafts))
        started = insert_intents(pen, self.progress.lease, missing, start=at_once)
        self._marked |= {row.pk for row in started}
        return {row.call_key for row in missing}

    def _has_a_turn(self, row: ToolExecution) -> bool:
        """Whether a call may have to wait for others, or is not this process's to run."""
        tool = self.tool_of(row)
        return tool is not None and (
            tool.sequential or tool.concurrency is not None or tool.runs == "client"
        )

    def _keep_unrecorded(self) -> None:
        """A call that ended, and whose end could not be written, has ended all the same."""
        for row, _ in self.progress.unrecorded:
            if row.call_key in self.rows and not self.rows[row.call_key].is_settled:
                self.rows[row.call_key] = row

    def _asked(self) -> dict[int, list[Interrupt]]:
        waiting = [
            row.pk
            for row in self.rows.values()
            if row.status != CallStatus.PENDING
            and not row.is_settled
            and row.pk not in self._marked  # started by this very look
        ]
        found: dict[int, list[Interrupt]] = {}
        self.answers = {}
        if waiting:
            asked = Interrupt.objects.filter(tool_execution__in=waiting)
            for one in asked.order_by("occurrence", "created_at"):
                found.setdefault(one.tool_execution_id or 0, []).append(one)
        self.was_asked = self.was_asked or bool(found)
        return found

    def _replay(self, pen: Pen, fresh: set[str]) -> None:
        """Take the outcomes that are recorded already; one that cannot be read back is none."""
        for key, row in self.rows.items():
            if not row.is_settled or key in fresh:
                continue
            if not doubt.is_readable(row):
                doubt.reopen(pen, row)
                continue
            counted.send(sender=None, name="tool.replayed", value=1, attributes={"tool": row.tool})
            pen.tell("tool.replayed", **ledger.news_of(row))

    def _decide(self, pen: Pen, row: ToolExecution, asked: list[Interrupt]) -> None:
        """Sort one unsettled call into what is to be done about it."""
        tool = self.tool_of(row)
        if tool is None:
            self._decide_without_tool(pen, row, asked)
            return
        self.scopes += [row.call_key, f"{row.call_key}:approval", f"{row.call_key}:outcome"]
        mine = [one for one in asked if one.kind == InterruptKind.QUESTION]
        self.answers[row.call_key] = mine
        if row.pk in self.asked_now:
            self.questions += self.asked_now[row.pk]
            self.scopes += [one.scope for one in self.asked_now[row.pk]]
            self._wait_within(self.asked_within.get(row.pk))
        elif jobs.is_job(row):
            self._decide_job(pen, row)
        elif client_calls.is_with_client(row):
            self._decide_handed_over(pen, row, tool, asked)
        elif row.status == CallStatus.PENDING:
            self._start_when_due(pen, row)
        elif row.status == CallStatus.INTERRUPTED:
            self._decide_interrupted(pen, row, tool, asked, mine)
        else:
            self._decide_unknown(pen, row, tool, asked)

    def _wait_within(self, waiting: Waiting | Later | None) -> None:
        if waiting is None:
            return
        self.elsewhere += waiting.calls
        if isinstance(waiting, Later):
            self._wait_for(waiting.seconds)
            return
        self.scopes += waiting.scopes
        if waiting.wake_in is not None:
            self._wait_for(waiting.wake_in)

    def _decide_job(self, pen: Pen, row: ToolExecution) -> None:
        """A call that goes on elsewhere: it is asked about when it is due, and never started."""
        said = self.polled.pop(row.pk, NOT_PRESENT)
        if isinstance(said, Outcome):
            row = ledger.settle(pen, row, said)
            if row.is_settled:
                return
        elif said is NOT_PRESENT and jobs.is_due(row):
            self.to_poll.append(row)
            return
        if jobs.seconds_left(row) == 0:
            ledger.settle(pen, row, jobs.overdue(row, said if isinstance(said, str) else ""))
            return
        if said is not NOT_PRESENT and row.outside is not None:
            row.save_fields(retry_at=DatabaseTime(row.outside["every"]))
            row.refresh_from_db(fields=["retry_at"])
        self.elsewhere.append(row.pk)
        self._wait_for(jobs.seconds_to_wait(row))

    def _wait_for(self, seconds: float) -> None:
        self.retry_in = seconds if self.retry_in is None else min(seconds, self.retry_in)

    def _decide_handed_over(
        self, pen: Pen, row: ToolExecution, tool: Tool, asked: list[Interrupt]
    ) -> None:
        self.scopes.append(client_calls.scope_of(row))
        standing = client_calls.standing_of(row, tool, asked)
        if isinstance(standing, Outcome):
            ledger.settle(pen, row, standing)
        elif isinstance(standing, Interrupt):
            self.questions.append(gate.same_question(standing))
        else:
            self.questions.append(standing)

    def _decide_without_tool(self, pen: Pen, row: ToolExecution, asked: list[Interrupt]) -> None:
        """The tool went away in a deploy while the call waited: only a no needs nothing of it."""
        answers = [one.answer for one in asked if one.kind == InterruptKind.APPROVAL and one.answer]
        if row.attempts or not answers or answers[-1].get("verdict") == "approve":
            raise GraphChanged(reason=f"its tool {row.tool!r} is gone")
        ledger.settle(pen, row, gate.declined(answers[-1]))

    def _start_when_due(self, pen: Pen, row: ToolExecution) -> None:
        if row.retry_at is not None:
            left = (row.retry_at - ledger.database_now()).total_seconds()
            if left > 0:
                self._wait_for(left)
                return
        self._start(pen, row, counts=True, why="its policy" if row.attempts else "")

    def _decide_interrupted(
        self,
        pen: Pen,
        row: ToolExecution,
        tool: Tool,
        asked: list[Interrupt],
        mine: list[Interrupt],
    ) -> None:
        if row.attempts:  # the body asked: it goes on when none of its questions is open
            still = [one for one in mine if one.status == InterruptStatus.OPEN]
            still += self._open_memos(row)
            self.scopes += [one.scope for one in still]
            if still:
                self.questions += [gate.same_question(one) for one in still]
            else:
                self._start(pen, row, counts=False, why="answered")
            return
        approvals = [one for one in asked if one.kind == InterruptKind.APPROVAL]
        standing = gate.standing_of(self.progress, row, tool, approvals)
        if standing.question is not None:
            self.questions.append(standing.question)
        elif standing.refused is not None:
            ledger.settle(pen, row, standing.refused)
        elif standing.allowed is not None:
            self._start_approved(pen, row, tool, standing.allowed)

    def _start_approved(self, pen: Pen, row: ToolExecution, tool: Tool, allowed: Interrupt) -> None:
        if self._still_allowed(pen, row, tool, allowed):
            crash_point("A5")
            self._start(pen, row, counts=True)

    def _still_allowed(self, pen: Pen, row: ToolExecution, tool: Tool, allowed: Interrupt) -> bool:
        """Whether the yes still counts at this moment; asked before every start, also a repeated
        one. A no settles the call, a check that is still to be made does not.
        """
        rule = tool.approval
        if rule is not None and rule.recheck is not None and row.pk not in self.rechecked:
            self.to_recheck.append(row)
            return False
        why = self.rechecked.get(row.pk)
        for _, answer in gated_call_starting.send(
            sender=ToolExecution, execution=row, interrupt=allowed
        ):
            why = why or answer
        if why:
            ledger.settle(pen, row, gate.refused(str(why), is_first=not row.attempts))
        return not why

    def _open_memos(self, row: ToolExecution) -> list[Interrupt]:
        """The questions about steps that the body of this call marked with `once()`."""
        asked = Interrupt.objects.filter(
            run_id=row.run_id,
            kind=InterruptKind.OUTCOME,
            status=InterruptStatus.OPEN,
            scope__startswith=f"{row.call_key}:once:",
        )
        return list(asked)

    def _decide_unknown(
        self, pen: Pen, row: ToolExecution, tool: Tool, asked: list[Interrupt]
    ) -> None:
        """A call that was started, by a worker that is gone or given up, and has no outcome."""
        if row.pk in self._marked:  # this look had landed, only the answer to COMMIT was lost
            self.to_start.append(row)
            return
        found = self.reconciled.get(row.pk, NOT_PRESENT)
        answer = doubt.answer_about(row)
        if isinstance(found, Outcome):
            ledger.settle(pen, row, found)
        elif answer is not None and answer["outcome"] != "retry":
            ledger.settle(pen, row, doubt.told_outcome(answer))
        elif answer is not None or found == "not done" or self._may_repeat(row, tool):
            told = answer is not None
            self._start_again(pen, row, tool, asked, told=told, is_not_done=found == "not done")
        elif still := [one for one in asked if one.status == InterruptStatus.OPEN]:
            self.questions += [gate.same_question(one) for one in still]
        elif tool.reconcile is not None and found is NOT_PRESENT:
            self.to_reconcile.append(row)
        else:
            ledger.settle(pen, row, Outcome(CallStatus.UNKNOWN, error=row.error))
            said = found if isinstance(found, str) else ""
            self.questions.append(doubt.outcome_question(row, said))

    def _may_repeat(self, row: ToolExecution, tool: Tool) -> bool:
        if tool.effect == "transactional":
            return row.status == CallStatus.RUNNING  # its row would say so if it had happened
        return tool.effect == "repeatable" and doubt.within_key_window(row, tool.key_ttl)

    @property
    def may_start_more(self) -> bool:
        """Whether a call that waits for a place could have one by now."""
        waiting = [self.tool_of(row) for row in self.crowded if row.status == CallStatus.PENDING]
        return any(tool is not None and slots.is_free(tool) for tool in waiting)

    def start_more(self) -> None:
        """Start the calls that have a place by now, while others of the turn are at work."""
        keys = [row.call_key for row in self.crowded]
        durably(lambda: self._start_more(keys))

    def _start_more(self, keys: list[str]) -> None:
        self.to_start, self.crowded = [], []
        run = Run.held(self.progress.lease)
        if run.stop_requested_at is not None:
            self.progress.stop_seen = True
            raise Cancelled
        with writing(run.thread_id, run.pk) as pen:
            for key, row in ledger.rows_by_key(run.thread_id, keys).items():
                self.rows[key] = row
                if row.pk in self._marked:  # an earlier try had landed
                    self.to_start.append(row)
                elif row.status == CallStatus.PENDING and row.retry_at is None:
                    self._start(pen, row, counts=True)
                elif not row.is_settled:
                    self.crowded.append(row)

    def _start_again(
        self,
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
        if allowed is not None and not self._still_allowed(pen, row, tool, allowed):
            return
        self.reconciled.pop(row.pk, None)  # what was said is about the attempt before
        why = "a person" if told else "its provider" if is_not_done else "the same key"
        self._start(pen, row, counts=True, why=why)

    def _start(self, pen: Pen, row: ToolExecution, *, counts: bool, why: str = "") -> None:
        tool = self.tool_of(row)
        if tool is not None and tool.sequential and self.to_start:
            return  # it has its turn when the others are done
        if any((one := self.tool_of(other)) and one.sequential for other in self.to_start):
            return
        if tool is not None and not slots.take(tool, row.pk):
            self.crowded.append(row)
            return
        ledger.mark_started(pen, self.progress.lease, row, counts=counts, why=why)
        if tool is not None and tool.runs == "client":
            row.save_fields(outside=client_calls.OUTSIDE)
            self._decide_handed_over(pen, row, tool, [])
            return
        self._marked.add(row.pk)
        self.to_start.append(row)
