"""How a run ends: said once, in one transaction with everything that ends with it."""

from __future__ import annotations

from typing import Any

from agentruntime.exceptions import AgentRuntimeError
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.models import Interrupt, InterruptStatus, Run, RunStatus
from agentruntime.signals import interrupt_closed, run_ended


def end_run(run: Run, pen: Pen, status: str, **error: Any) -> None:
    """Move a locked run to its end, close what it still asks, and tell of it.

    `error` may hold `error_code` and `error_detail`. The pen is saved by its owner.
    """
    close_questions(run)
    run.move_to(status, stop_requested_at=None, **error)
    pen.tell(f"run.{status}", error=run.error)
    run_ended.send(sender=Run, run=run)


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
