"""Deciding an explicit list: each one by itself, with its own checks, lock and result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from approvals.conf import approval_settings
from approvals.decide import decide
from approvals.exceptions import ApprovalError, ApprovalNotFound
from approvals.history import note_refused
from approvals.models import Approval, Door, Verdict
from approvals.permissions import Rights, amount_of, visible_to, why_not


@dataclass(frozen=True)
class Result:
    """What became of one item: done, or not and why."""

    approval_id: str
    done: bool
    told: str


def objection(approval: Approval, rights: Rights | None, verdict: str) -> str:
    """Return why this one cannot be decided among others, or ""."""
    if not approval.is_pending:
        return f"It is {approval.told.lower()} already."
    if why := why_not(rights, approval, amount_of(approval)):
        return f"You may not: {why}"
    return too_large(approval) if verdict == Verdict.APPROVE else ""


def too_large(approval: Approval) -> str:
    """Return why this one is never approved among others, or ""."""
    amount = amount_of(approval)
    if amount is None:
        named = approval.rule.get("amount_argument")
        return "Its amount is not known: open it." if named else ""
    limit = Decimal(approval_settings().BULK_UP_TO)
    return f"Above {limit:f} each one is looked at by itself." if amount > limit else ""


def decide_some(
    items: Iterable[tuple[str, str]], rights: Rights | None, user: Any, verdict: str, reason: str
) -> list[Result]:
    """Decide pairs of (approval id, digest that was shown), one after the other."""
    results = []
    for approval_id, digest in items:
        approval = Approval.objects.filter(visible_to(rights), pk=approval_id).first()
        if approval is None:
            note_refused(approval_id, user, Door.BULK, ApprovalNotFound(approval=approval_id))
            results.append(Result(approval_id, False, "It is gone."))
            continue
        # Who may not decide at all is refused, and noted, by the door.
        limited = verdict == Verdict.APPROVE and not why_not(rights, approval, amount_of(approval))
        if limited and approval.is_pending and (why := too_large(approval)):
            results.append(Result(approval_id, False, why))
            continue
        results.append(_decide_one(approval_id, digest, user, verdict, reason))
    return results


def _decide_one(approval_id: str, digest: str, user: Any, verdict: str, reason: str) -> Result:
    try:
        decision = decide(
            approval_id=approval_id,
            verdict=verdict,
            user=user,
            digest=digest,
            reason=reason,
            door=Door.BULK,
        )
    except ApprovalError as refused:
        return Result(approval_id, False, str(refused))
    told = decision.what if decision.is_final else f"{decision.what}; others have to agree"
    return Result(approval_id, True, told.capitalize())
