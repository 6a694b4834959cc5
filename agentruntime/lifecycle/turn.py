"""The calls of one assistant message, and what is to be done about them now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentruntime.exceptions import StepError
from agentruntime.graph.messages import ToolCall
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle.history import call_key
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Question
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.slots import slots
from agentruntime.models import CallStatus, Interrupt, ToolExecution


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
    marked: set[int] = field(default_factory=set)
    """Those that the look at hand has marked as started."""

    @property
    def keys(self) -> list[str]:
        return [call_key(self.message_id, call.id) for call in self.calls]

    @property
    def is_settled(self) -> bool:
        """Whether every call has its outcome."""
        return all(row.is_settled for row in self.rows.values())

    def look_anew(self) -> None:
        """Forget what the last look found that there is to do."""
        self.to_start, self.to_reconcile, self.to_recheck = [], [], []
        self.questions, self.scopes, self.retry_in = [], [], None
        self.to_poll, self.elsewhere, self.crowded = [], [], []

    def tool_of(self, row: ToolExecution) -> Tool | None:
        return self.tools.get(row.tool)

    def wait_for(self, seconds: float) -> None:
        """Note that there is something to do again after so many seconds."""
        self.retry_in = seconds if self.retry_in is None else min(seconds, self.retry_in)

    @property
    def may_start_more(self) -> bool:
        """Whether a call that waits for a place could have one by now."""
        waiting = [self.tool_of(row) for row in self.crowded if row.status == CallStatus.PENDING]
        return any(tool is not None and slots.is_free(tool) for tool in waiting)
