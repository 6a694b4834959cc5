"""Claiming: telling others who is at work on what. It lapses, and stops nobody from deciding."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from agentruntime.models.transactions import durably
from approvals.conf import approval_settings
from approvals.exceptions import ClaimedByOther, NotAllowed
from approvals.history import note
from approvals.models import Approval
from approvals.permissions import amount_of, rights_of, why_not
from approvals.standing import check_open


def claim(*, approval_id: uuid.UUID, user: Any) -> None:
    """Claim a waiting approval for `user`; one's own claim is prolonged.

    Raises `ClaimedByOther` while another's claim holds, and what `decide()` raises for who may not.
    """

    def work() -> None:
        approval = Approval.locked(approval_id)
        rights = rights_of(user)
        if why := why_not(rights, approval, amount_of(approval)):
            raise NotAllowed(user=rights.username if rights else "Nobody", reason=why)
        check_open(approval, None)
        if approval.claimed_by_id not in (None, user.pk) and holds(approval, approval.now):
            raise ClaimedByOther(
                by=approval.claimed_by.get_username(),
                at=approval.claimed_at.isoformat(timespec="seconds"),
            )
        fresh = approval.claimed_by_id != user.pk
        approval.save_fields(claimed_by_id=user.pk, claimed_at=approval.now)
        if fresh:
            note(approval, user.pk, "Claimed")

    durably(work)


def release(*, approval_id: uuid.UUID, user: Any) -> None:
    """Give a claim back. Only one's own; a repeat changes nothing."""

    def work() -> None:
        approval = Approval.locked(approval_id)
        if approval.claimed_by_id is None:
            return
        if approval.claimed_by_id != user.pk:
            raise ClaimedByOther(
                by=approval.claimed_by.get_username(),
                at=approval.claimed_at.isoformat(timespec="seconds"),
            )
        approval.save_fields(claimed_by_id=None, claimed_at=None)
        note(approval, user.pk, "Released")

    durably(work)


def holds(approval: Approval, now: datetime) -> bool:
    """Say whether the claim on an approval has not lapsed."""
    if approval.claimed_by_id is None or approval.claimed_at is None:
        return False
    return approval.claimed_at + timedelta(seconds=approval_settings().CLAIM_SECONDS) > now
