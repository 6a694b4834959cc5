"""One look at the calls of a turn, in one transaction: what to start, to ask, to find out, to
return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import CallParked, InvalidArguments, ToolError, UnknownTool
from agentruntime.graph.messages import ToolCall
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import gate, ledger
from agentruntime.lifecycle.history import call_key
from agentruntime.lifecycle.outcomes import Outcome, as_error
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.record import Pen, writing
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
    questions: list[Question] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    retry_in: float | None = None
    answers: dict[str, list[Interrupt]] = field(default_factory=dict)
    asked_now: dict[int, list[Question]] = field(default_factory=dict)
    rechecked: dict[int, str | None] = field(default_factory=dict)
    reconciled: dict[int, Any] = field(default_factory=dict)
    is_first_look: bool = True

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
        drafts = self._drafts()
        durably(lambda: self._look(drafts))
        self.is_first_look = False

    def _drafts(self) -> list[ToolExecution]:
        """Rows for the calls that have none yet; invalid ones are failed before anybody is
        asked.
        """
        there = ledger.rows_by_key(self.progress.thread.pk, self.keys)
        return [
            self._draft(call, key)
            for call, key in zip(self.calls, self.keys, strict=True)
            if key not in there
        ]

    def _draft(self, call: ToolCall, key: str) -> ToolExecution:
        row = ToolExecution(
            thread_id=self.progress.thread.pk,
            run_id=self.progress.run.pk,
            call_key=key,
            tool_call_id=call.id,
            node=self.node,
            version=self.progress.version,
            tool=call.name[:200],
            arguments=call.arguments if isinstance(call.arguments, dict) else {},
        )
        try:
            tool = self.tools.get(call.name)
            if tool is None:
                raise UnknownTool(tool=call.name, known=", ".join(self.tools) or "none")
            row.effect, row.tool_fingerprint = tool.effect, tool.fingerprint
            if call.extra.get("cut"):
                raise InvalidArguments(
                    tool=call.name, reason="the answer was cut off in the middle of the call"
                )
            values, row.arguments = tool.read_arguments(call.arguments)
            if gate.needs_approval(tool, values):
                row.status = CallStatus.INTERRUPTED
        except ToolError as error:
            row.status, row.error = CallStatus.FAILED, as_error(error)
        return row

    def _look(self, drafts: list[ToolExecution]) -> None:
        self.to_start, self.to_reconcile, self.to_recheck = [], [], []
        self.questions, self.scopes, self.retry_in = [], [], None
        run = Run.held(self.progress.lease)
        with writing(run.thread_id, run.pk) as pen:
            fresh = self._insert(pen, drafts)
            self.rows = ledger.rows_by_key(run.thread_id, self.keys)
            asked = self._asked()
            for key in self.keys:
                row = self.rows[key]
                if not row.is_settled:
                    self._decide(pen, row, asked.get(row.pk, []))
                elif key not in fresh and self.is_first_look:
                    self._replay(pen, row)
            if run.attempts:
                run.save_fields(attempts=0)

    def _insert(self, pen: Pen, drafts: list[ToolExecution]) -> set[str]:
        there = (
            ledger.rows_by_key(self.progress.thread.pk, [row.call_key for row in drafts])
            if drafts
            else {}
        )
        missing = [row for row in drafts if row.call_key not in there]
        for row in missing:
            row.pk = None
            row.finished_at = DatabaseTime() if row.is_settled else None
        ToolExecution.objects.bulk_create(missing)
        for row in missing:
            if row.status == CallStatus.FAILED:
                pen.tell("tool.failed", **ledger.news_of(row))
        return {row.call_key for row in missing}

    def _asked(self) -> dict[int, list[Interrupt]]:
        waiting = [
            row.pk
            for row in self.rows.values()
            if row.status != CallStatus.PENDING and not row.is_settled
        ]
        found: dict[int, list[Interrupt]] = {}
        self.answers = {}
        if waiting:
            for one in Interrupt.objects.filter(tool_execution__in=waiting).order_by(
                "created_at", "id"
            ):
                found.setdefault(one.tool_execution_id or 0, []).append(one)
        return found

    def _replay(self, pen: Pen, row: ToolExecution) -> None:
        if ledger.is_readable(row):
            counted.send(sender=None, name="tool.replayed", value=1, attributes={"tool": row.tool})
            pen.tell("tool.replayed", **ledger.news_of(row))

    def _decide(self, pen: Pen, row: ToolExecution, asked: list[Interrupt]) -> None:
        """Sort one unsettled call into what is to be done about it."""
        tool = self.tool_of(row)
        if tool is None:
            error = UnknownTool(tool=row.tool, known=", ".join(self.tools) or "none")
            ledger.settle(pen, row, Outcome(CallStatus.FAILED, error=as_error(error)))
            return
        self.scopes += [row.call_key, f"{row.call_key}:approval", f"{row.call_key}:outcome"]
        mine = [one for one in asked if one.kind == InterruptKind.QUESTION]
        self.answers[row.call_key] = mine
        if row.pk in self.asked_now:
            self.questions += self.asked_now[row.pk]
        elif row.status == CallStatus.PENDING:
            self._start_when_due(pen, row)
        elif row.status == CallStatus.INTERRUPTED:
            self._decide_interrupted(pen, row, tool, asked, mine)
        else:
            self._decide_unknown(pen, row, tool)

    def _start_when_due(self, pen: Pen, row: ToolExecution) -> None:
        if row.retry_at is not None:
            left = (row.retry_at - _database_now()).total_seconds()
            if left > 0:
                self.retry_in = left if self.retry_in is None else min(left, self.retry_in)
                return
        self._start(pen, row, counts=True)

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
            if still:
                self.questions += [_kept(one) for one in still]
            else:
                self._start(pen, row, counts=False)
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
        if (
            tool.approval is not None
            and tool.approval.recheck is not None
            and row.pk not in self.rechecked
        ):
            self.to_recheck.append(row)
            return
        why = self.rechecked.get(row.pk)
        for _, answer in gated_call_starting.send(
            sender=ToolExecution, execution=row, interrupt=allowed
        ):
            why = why or answer
        if why:
            ledger.settle(pen, row, gate.refused(str(why)))
        else:
            self._start(pen, row, counts=True)

    def _decide_unknown(self, pen: Pen, row: ToolExecution, tool: Tool) -> None:
        """A call that was started, by a worker that is gone or given up, and has no outcome."""
        if (
            row.status == CallStatus.RUNNING
            and row.fencing_token == self.progress.lease.fencing_token
        ):
            self._start(
                pen, row, counts=False
            )  # an earlier look had landed, only its answer was lost
            return
        found = self.reconciled.get(row.pk, NOT_PRESENT)
        answer = ledger.answer_about(row)
        if isinstance(found, Outcome):
            ledger.settle(pen, row, found)
        elif answer is not None and answer["outcome"] != "retry":
            ledger.settle(pen, row, ledger.told_outcome(answer))
        elif answer is not None or found == "not done" or self._may_repeat(row, tool):
            self._start_again(pen, row, asked=answer is not None)
        elif tool.reconcile is not None and found is NOT_PRESENT:
            self.to_reconcile.append(row)
        else:
            if row.status != CallStatus.UNKNOWN:
                ledger.settle(pen, row, Outcome(CallStatus.UNKNOWN))
            said = found if isinstance(found, str) else ""
            self.questions.append(ledger.outcome_question(row, said))

    def _may_repeat(self, row: ToolExecution, tool: Tool) -> bool:
        if tool.effect == "transactional":
            return True
        return tool.effect == "repeatable" and ledger.within_key_window(row, tool.key_ttl)

    def _start_again(self, pen: Pen, row: ToolExecution, asked: bool) -> None:
        spent = row.attempts - row.forgiven_attempts
        if spent >= runtime_settings().MAX_CALL_ATTEMPTS and not asked:
            raise CallParked(tool=row.tool, attempts=row.attempts)
        self._start(pen, row, counts=True)

    def _start(self, pen: Pen, row: ToolExecution, *, counts: bool) -> None:
        tool = self.tool_of(row)
        if tool is not None and tool.sequential and self.to_start:
            return  # it has its turn when the others are done
        if any((one := self.tool_of(other)) and one.sequential for other in self.to_start):
            return
        ledger.mark_started(pen, self.progress.lease, row, counts=counts)
        self.to_start.append(row)


def _kept(one: Interrupt) -> Question:
    return Question(
        scope=one.scope,
        payload=one.payload,
        occurrence=one.occurrence,
        kind=one.kind,
        tool_execution_id=one.tool_execution_id,
    )


def _database_now() -> Any:
    return Run.objects.annotate(now=DatabaseTime()).values_list("now", flat=True)[:1][0]
