"""What is due: the first notice of a question, its reminder, its escalation, and the outbox.

Due times stand in the database and are looked at by every worker's sweep, so they are met late at
worst, whatever was down. Expiry is the runtime's own: it ends the question itself.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.db import connections
from django.dispatch import receiver

from agentruntime.models import DatabaseTime, StatementTime
from agentruntime.models.transactions import durably
from agentruntime.signals import noticed, swept
from approvals.conf import approval_settings
from approvals.models import Approval, Notice, NoticeStatus, Status
from approvals.notifications import plan_round, send_due

STEP = 100
ROUNDS = (("escalate_at", "escalated"), ("notify_at", "asked"), ("remind_at", "reminder"))

_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="approvals-notices")
_sending = threading.Semaphore(1)


def sweep() -> int:
    """Do what is due now, in this thread, and return how many notices were sent."""
    plan_due()
    return send_due()


@receiver(swept, dispatch_uid="approvals.swept")
def start_sweep(**_: Any) -> None:
    """Plan what is due, and have it sent beside the sweep, which waits for no mail server."""
    plan_due()
    if not Notice.objects.filter(status=NoticeStatus.DUE, due_at__lte=StatementTime()).exists():
        return
    if _sending.acquire(blocking=False):
        _pool.submit(_send_and_release)


def _send_and_release() -> None:
    try:
        send_due()
    except Exception as error:  # the next sweep tries again
        noticed.send(
            sender=None,
            level="error",
            event="notices could not be sent",
            facts={"error": repr(error)},
        )
    finally:
        connections.close_all()
        _sending.release()


def plan_due() -> None:
    """Plan every round whose time has come, each in a transaction of its own."""
    pending = Approval.objects.filter(status=Status.PENDING)
    found: set[uuid.UUID] = set()
    for name, _ in ROUNDS:  # one look for each, as each has an index
        due = pending.filter(**{f"{name}__lte": StatementTime()}).order_by(name)
        found.update(due.values_list("pk", flat=True)[:STEP])
    for approval_id in found:
        _each(lambda pk=approval_id: _plan(pk), approval_id)  # type: ignore[misc]


def _each(work: Callable[[], None], approval_id: uuid.UUID) -> None:
    try:
        durably(work)
    except Exception as error:  # one bad row never stops the others
        facts = {"approval": approval_id, "error": repr(error)}
        noticed.send(sender=None, level="error", event="a notice could not be planned", facts=facts)


def _plan(approval_id: uuid.UUID) -> None:
    rows = Approval.objects.select_for_update(skip_locked=True)
    approval = rows.annotate(now=DatabaseTime()).filter(pk=approval_id).first()
    if approval is None or not approval.is_pending:
        return
    for name, why in ROUNDS:
        moment = getattr(approval, name)
        if moment is None or moment > approval.now:
            continue
        changes: dict[str, Any] = {name: _reminder_after(approval) if why == "reminder" else None}
        if why == "escalated" and approval.rule.get("escalate_to"):
            changes["escalated_to"] = str(approval.rule["escalate_to"])[:150]
        approval.save_fields(**changes)
        plan_round(approval, why)
        approval.save_fields(rounds=approval.rounds + 1)


def _reminder_after(approval: Approval) -> Any:
    """Return when people are reminded again, after the reminder that is due now; None for never."""
    seconds = approval.rule.get("remind_after")
    escalated = bool(approval.rule.get("escalate_after")) and approval.escalate_at is None
    # The other rounds are the first notice and the escalation.
    reminders = approval.rounds - (approval.notify_at is None) - escalated
    if not seconds or reminders + 1 >= approval_settings().REMINDERS:
        return None
    return approval.now + timedelta(seconds=float(seconds))
