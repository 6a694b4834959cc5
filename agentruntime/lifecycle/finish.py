"""How a run ends: said once, in one transaction with everything that ends with it."""

from __future__ import annotations

from typing import Any

from agentruntime.exceptions import AgentRuntimeError
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.models import (
    ENDED,
    CallStatus,
    Interrupt,
    InterruptStatus,
    Lease,
    Run,
    RunStatus,
    ToolExecution,
)
from agentruntime.signals import call_settled, counted, interrupt_closed, run_ended


def end_run(run: Run, pen: Pen, status: str, **error: Any) -> None:
    """Move a locked run to its end, close what it still asks, and tell of it.

    `error` may hold `error_code` and `error_detail`. The pen is saved by its owner.
    """
    close_questions(run)
    if status != RunStatus.COMPLETED:
        _leave_calls(run, pen)
    if status != RunStatus.STOPPED:  # of a stopped run it stays: nothing may have started since
        error["stop_requested_at"] = None
    run.move_to(status, **error)
    pen.tell(f"run.{status}", error=run.error)
    run_ended.send(sender=Run, run=run)


def _leave_calls(run: Run, pen: Pen) -> None:
    """What had been started and has no outcome is said to be unknown. Nothing waits in the row of a
    transactional call: its effect cannot be there without its outcome.
    """
    started = ToolExecution.objects.filter(run=run, status=CallStatus.RUNNING)
    for row in started.order_by("id"):
        if row.effect == "transactional" and row.outside is None:
            row.save_fields(status=CallStatus.PENDING)
            continue
        row.save_fields(status=CallStatus.UNKNOWN)
        counted.send(sender=None, name="tool.unknown", value=1, attributes={"tool": row.tool})
        pen.tell("tool.unknown", call_key=row.call_key, tool=row.tool, status=row.status)
        call_settled.send(sender=ToolExecution, execution=row)


def ended_already(lease: Lease) -> bool:
    """Say whether the run has ended under this very lease."""
    ended = Run.objects.filter(pk=lease.run_id, fencing_token=lease.fencing_token, status__in=ENDED)
    return ended.exists()


def fail_run(run: Run, error: BaseException) -> None:
    """End a locked run as failed (or timed out) with the code and the words of `error`."""
    code = error.code if isinstance(error, AgentRuntimeError) else "NODE_FAILED_001"
    status = RunStatus.TIMED_OUT if code == "NODE_TIMEOUT_001" else RunStatus.FAILED
    with writing(run.thread_id, run.pk) as pen:
        end_run(run, pen, status, error_code=code, error_detail=readable(str(error)))


def close_questions(run: Run, status: str = InterruptStatus.CANCELLED, **which: Any) -> None:
    """Close the open questions of a locked run, all or those that match `which`."""
    waiting = Interrupt.objects.select_for_update().filter(
        run=run, status=InterruptStatus.OPEN, **which
    )
    for interrupt in waiting.order_by("created_at"):
        interrupt.status = status
        interrupt.save(update_fields=["status"])
        interrupt_closed.send(sender=Interrupt, interrupt=interrupt)


def readable(text: str, limit: int = 2000) -> str:
    """Return text that every database stores: no NUL, no lone surrogate, and not too long."""
    clean = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean):,} characters)"
