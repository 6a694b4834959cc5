"""A run as a picture: its steps, its calls and its waits, as bars on one line of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from agentruntime.models import Checkpoint, Interrupt, Run, ToolExecution
from approvals.models import Approval

WIDTH = 640
ROW = 22
LEFT = 4
MAX_BARS = 40
MIN_WIDTH = 3


@dataclass(frozen=True)
class Bar:
    """One thing that happened: where it lies in the picture and what it says."""

    kind: str
    label: str
    told: str
    x: int
    y: int
    width: int
    is_this: bool = False

    @property
    def text_y(self) -> int:
        return self.y + 15

    @property
    def text_right(self) -> bool:
        """Whether the words end at the bar's left edge, for want of room on its right."""
        return self.x > WIDTH * 0.55

    @property
    def text_x(self) -> int:
        return self.x - 5 if self.text_right else self.x + 6


def timeline_of(run: Run, approval: Approval) -> list[Bar]:
    """Return the bars of a run, oldest first; only the newest where there are many."""
    spans = sorted(_spans(run, approval), key=lambda one: one[2])[-MAX_BARS:]
    if not spans:
        return []
    begin = min(one[2] for one in spans)
    end = max(max(one[3] for one in spans), begin)
    whole = max((end - begin).total_seconds(), 0.001)
    return [
        Bar(
            kind=kind,
            label=label,
            told=f"{label}: {_seconds(start, stop)}, from {start:%H:%M:%S}",
            x=LEFT
            + round((start - begin).total_seconds() / whole * (WIDTH - 2 * LEFT - MIN_WIDTH)),
            y=index * ROW,
            width=max(
                MIN_WIDTH, round((stop - start).total_seconds() / whole * (WIDTH - 2 * LEFT))
            ),
            is_this=this,
        )
        for index, (kind, label, start, stop, this) in enumerate(spans)
    ]


def _spans(run: Run, approval: Approval) -> list[tuple[str, str, datetime, datetime, bool]]:
    now = timezone.now()
    spans: list[Any] = []
    last = run.created_at
    for row in Checkpoint.objects.filter(run=run).order_by("version"):
        spans.append(("step", f"step {row.node or 'start'}", last, row.created_at, False))
        last = row.created_at
    for call in ToolExecution.objects.filter(run=run).exclude(started_at=None):
        stop = call.finished_at or now
        spans.append(("call", f"call {call.tool}, {call.status}", call.started_at, stop, False))
    for one in Interrupt.objects.filter(run=run).order_by("created_at"):
        stop = one.answered_at or (now if one.status == "open" else one.created_at)
        this = one.pk == approval.interrupt_id
        spans.append(("wait", f"wait for a person, {one.status}", one.created_at, stop, this))
    return spans


def _seconds(start: datetime, stop: datetime) -> str:
    seconds = (stop - start).total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
