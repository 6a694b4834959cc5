"""Who is told, through which channel: rows of the outbox, one per recipient, channel and round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q

from agentruntime.models import DatabaseTime
from approvals.conf import approval_settings
from approvals.models import Approval, Channel, Notice
from approvals.permissions import amount_of, policy_for, rights_of, why_not

MAX_RECIPIENTS = 200


def plan_round(approval: Approval, why: str) -> int:
    """Write the notices of one round for a waiting approval; the caller holds its lock.

    `why` is asked, reminder or escalated. Who would be told twice in one round is told once.
    """
    notices = [
        Notice(
            approval=approval,
            channel=channel,
            recipient=recipient,
            round=approval.rounds,
            why=why,
            due_at=DatabaseTime(),
        )
        for channel, recipient in _recipients(approval)
    ]
    Notice.objects.bulk_create(notices, ignore_conflicts=True)
    return len(notices)


def _recipients(approval: Approval) -> Iterator[tuple[str, str]]:
    settings = approval_settings()
    if settings.MAIL:
        addresses = {user.email.lower(): user.email for user in people_who_may(approval)}
        yield from ((Channel.MAIL, address) for address in addresses.values())
    yield from ((Channel.WEBHOOK, one["name"]) for one in settings.WEBHOOKS)
    yield from ((Channel.SLACK, one["name"]) for one in settings.SLACK)


def people_who_may(approval: Approval) -> list[Any]:
    """Return the users with an address who may decide an approval at this moment."""
    policy = policy_for(approval.tool, approval.rule)
    bands = policy.bands or ()
    permissions = {policy.permission, *(band.permission for band in bands)} - {""}
    groups = {policy.group, approval.escalated_to, *(band.group for band in bands)} - {""}
    named = Q(groups__name__in=groups)
    for permission in permissions:
        app, _, codename = permission.partition(".")
        here = {"content_type__app_label": app, "codename": codename}
        for path in ("user_permissions", "groups__permissions"):
            named |= Q(**{f"{path}__{key}": value for key, value in here.items()})
    candidates = get_user_model()._default_manager.filter(named, is_active=True)
    amount = amount_of(approval)
    return [
        user
        for user in candidates.exclude(email="").distinct().order_by("pk")[:MAX_RECIPIENTS]
        if not why_not(rights_of(user), approval, amount, policy)
    ]
