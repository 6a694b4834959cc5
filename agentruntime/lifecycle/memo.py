"""The memos of `once()`: ledger rows of effect "once", one per name and node call or tool call."""

from __future__ import annotations

from typing import Any

from django.db.models import F

from agentruntime.exceptions import ToolFailed
from agentruntime.graph.jobs import Pending
from agentruntime.graph.messages import new_id
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle import doubt, ledger
from agentruntime.lifecycle.outcomes import failed, succeeded
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.recording import record
from agentruntime.models import (
    CallKind,
    CallStatus,
    DatabaseTime,
    Run,
    ToolExecution,
)
from agentruntime.models.transactions import durably


class Memo:
    """One named step of user code: not begun, recorded, or begun by a worker that is gone."""

    def __init__(self, progress: Progress, row: ToolExecution, is_mine: bool) -> None:
        self._progress, self.row, self._is_mine = progress, row, is_mine

    @property
    def is_recorded(self) -> bool:
        return self.row.is_settled

    @property
    def is_unknown(self) -> bool:
        return not self.row.is_settled and not self._is_mine

    def record(self, value: Any) -> None:
        if isinstance(value, Pending):
            self.fail(TypeError("a job is waited for by the tool that returns it, not by once()"))
            return
        self._settle(succeeded(_as_tool(self.row), self._progress.graph.state, value))

    def fail(self, error: BaseException) -> None:
        self._settle(failed(error))

    def take_back(self) -> None:
        """Forget that the step was begun: it asked a person and begins anew with the answer."""
        durably(self._take_back)

    def _take_back(self) -> None:
        lease = self._progress.lease
        Run.held(lease)
        mine = ToolExecution.objects.filter(pk=self.row.pk, status=CallStatus.RUNNING)
        mine = mine.filter(fencing_token=lease.fencing_token)
        # A person who was asked about an earlier attempt has said "again": that answer still holds.
        if not mine.filter(attempts__gt=1).update(
            status=CallStatus.UNKNOWN, attempts=F("attempts") - 1, started_at=F("first_started_at")
        ):
            mine.delete()

    def _settle(self, outcome: Any) -> None:
        self.row = record(self._progress, [(self.row, outcome)])[0]

    def result(self) -> Any:
        """Return the recorded result; raises `ToolFailed` where it is an error."""
        if self.row.error is not None:
            raise ToolFailed(kind=f"once({self.row.tool!r})", reason=self.row.error["detail"])
        return self.row.result

    def question(self) -> Question:
        return doubt.outcome_question(self.row)


def begin(progress: Progress, node: str, scope: str, name: str) -> Memo:
    """Return the memo `name` of a scope; one that is new is committed as begun."""
    key = f"{scope}:once:{name}"
    nonce = new_id()

    def work() -> Memo:
        run = Run.held(progress.lease)
        row = ToolExecution.objects.filter(thread_id=run.thread_id, call_key=key).first()
        if row is None:
            made = ToolExecution.objects.create(
                thread_id=run.thread_id,
                run=run,
                call_key=key,
                kind=CallKind.ONCE,
                node=node,
                version=progress.version,
                tool=name[:200],
                effect="once",
                status=CallStatus.RUNNING,
                arguments={"nonce": nonce},
                attempts=1,
                fencing_token=progress.lease.fencing_token,
                started_at=DatabaseTime(),
                first_started_at=DatabaseTime(),
            )
            made.refresh_from_db()
            return Memo(progress, made, is_mine=True)
        if row.arguments.get("nonce") == nonce:
            return Memo(progress, row, is_mine=True)
        return _reopened(progress, row)

    return durably(work)


def _reopened(progress: Progress, row: ToolExecution) -> Memo:
    """A memo that was begun before: recorded, answered by a person, or unknown."""
    if row.is_settled and doubt.is_readable(row):
        return Memo(progress, row, is_mine=False)
    answer = doubt.answer_about(row)
    if answer is None:
        row.save_fields(status=CallStatus.UNKNOWN)
        return Memo(progress, row, is_mine=False)
    if answer["outcome"] == "retry":
        row.save_fields(
            status=CallStatus.RUNNING,
            attempts=row.attempts + 1,
            fencing_token=progress.lease.fencing_token,
            started_at=DatabaseTime(),
        )
        return Memo(progress, row, is_mine=True)
    row.save_fields(**ledger.fields_of(doubt.told_outcome(answer)))
    return Memo(progress, row, is_mine=False)


def _as_tool(row: ToolExecution) -> Tool:
    return Tool(fn=lambda: None, name=row.tool, description="", effect="once")
