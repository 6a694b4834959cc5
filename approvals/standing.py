"""How an approval stands: locked, open or over, agreed to by whom."""

from __future__ import annotations

import uuid
from datetime import datetime

from agentruntime.models import Interrupt, Run, Thread
from approvals.conf import approval_settings
from approvals.exceptions import AlreadyDecided, ApprovalNotFound, NoLongerAsked
from approvals.models import Approval, Decision, Status, Verdict
from approvals.permissions import Rights, allowed_by_name, amount_of, rights_of, why_not


def lock_approval(approval_id: uuid.UUID) -> tuple[Approval, Interrupt | None]:
    """Lock run, thread, question and approval, in this order, and return the last two.

    The question is None where its thread has been deleted.
    """
    found = (
        Approval.objects.filter(pk=approval_id).only("run_id", "thread_id", "interrupt_id").first()
    )
    if found is None:
        raise ApprovalNotFound(approval=approval_id)
    Run.objects.select_for_update().filter(pk=found.run_id).first()
    Thread.objects.select_for_update().filter(pk=found.thread_id).first()
    interrupt = Interrupt.objects.select_for_update().filter(approval=found).first()
    return Approval.locked(approval_id), interrupt


def check_open(approval: Approval, interrupt: Interrupt | None) -> None:
    """Raise `AlreadyDecided` or `NoLongerAsked` unless the approval waits for an answer."""
    if approval.is_pending:
        over = approval.expires_at is not None and approval.expires_at <= approval.now
        if over and approval.declines_on_expiry:
            raise NoLongerAsked(
                became="expired", at=_when(approval.expires_at), told="Nobody answered in time."
            )
        return
    final = approval.decisions.filter(is_final=True).first()
    if final:
        raise AlreadyDecided(
            by=final.by, what=final.what, at=_when(final.at), verdict=final.verdict,
            decision=final.as_body(),
        )  # fmt: skip
    raise NoLongerAsked(
        became=Status(approval.status).label.lower().split(",")[0],
        at=_when(approval.closed_at),
        told="It was asked anew." if approval.status == Status.SUPERSEDED else "",
    )


def agreed_so_far(approval: Approval) -> list[Rights]:
    """Return the rights, as they are now, of those who agreed to the call as it stands.

    Who has lost the right since does not count, nor does the last editor where several must agree.
    """
    found = []
    amount = amount_of(approval)
    for decision in approval.decisions.filter(verdict=Verdict.APPROVE, digest=approval.digest):
        rights = rights_of(decision.user_id)
        if rights and not why_not(rights, approval, amount) and _counts(decision, rights):
            found.append(rights)
    return found


def _counts(decision: Decision, rights: Rights) -> bool:
    if decision.arguments is None or decision.is_final:
        return True
    return allowed_by_name(approval_settings().EDITOR_MAY_DECIDE, rights)


def _when(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment else "an unknown time"
