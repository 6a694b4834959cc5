"""How an approval stands: locked, open or over, agreed to by whom."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from agentruntime.models import DatabaseTime, Interrupt, Run, Thread
from approvals.conf import approval_settings
from approvals.exceptions import AlreadyDecided, NoLongerAsked
from approvals.models import Approval, Decision, Status, Verdict
from approvals.permissions import Rights, allowed_by_name, amount_of, rights_of, why_not


class Locked(NamedTuple):
    """An approval whose rows this transaction holds. Where its thread has been deleted, there is
    none, and no question either.
    """

    approval: Approval
    interrupt: Interrupt | None
    thread: Thread | None


def lock_approval(approval_id: uuid.UUID) -> Locked:
    """Lock run, thread, question and approval, in this order. Raises `ApprovalNotFound`."""
    asked_by = Approval.objects.filter(pk=approval_id).values("run_id")
    run = Run.objects.select_for_update().filter(pk__in=asked_by).first()
    thread = run and Thread.objects.select_for_update().filter(pk=run.thread_id).first()
    interrupt = run and (
        Interrupt.objects.select_for_update(of=("self", "approval"))
        .select_related("approval")
        .annotate(now=DatabaseTime())
        .filter(approval__pk=approval_id)
        .first()
    )
    if interrupt is None:
        return Locked(Approval.locked(approval_id), None, thread)
    approval = interrupt.approval
    approval.now, interrupt.run = interrupt.now, run
    return Locked(approval, interrupt, thread)


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


def agreed_so_far(approval: Approval, decisions: Iterable[Decision] | None = None) -> list[Rights]:
    """Return the rights, as they are now, of those who agreed to the call as it stands.

    Who has lost the right since does not count, nor does the last editor where several must agree.
    `decisions` are all that were taken on it, where they have been read already.
    """
    found = []
    amount = amount_of(approval)
    for decision in approval.decisions.all() if decisions is None else decisions:
        if (decision.verdict, decision.digest) != (Verdict.APPROVE, approval.digest):
            continue
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
