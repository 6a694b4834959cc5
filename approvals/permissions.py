"""Who may decide what: the rights of a person, the policy of an approval, and why one does not fit.

`User.has_perm` is not asked as it stands: it answers yes to everything for a superuser, and it
remembers what was true when the user was loaded. Rights are read afresh, without that bypass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q

from agentruntime.models import tenant_of
from approvals.conf import approval_settings
from approvals.models import Approval


@dataclass(frozen=True)
class Rights:
    """What a person may do at this moment."""

    user_id: Any
    username: str
    is_active: bool
    is_staff: bool
    is_superuser: bool
    permissions: frozenset[str]
    groups: frozenset[str]
    tenant: str

    def has(self, permission: str, group: str) -> bool:
        """Say whether both are held; an empty one is held by everybody."""
        return (not permission or permission in self.permissions) and (
            not group or group in self.groups
        )


@dataclass(frozen=True)
class Band:
    """Up to which amount somebody may decide (None: any), and how many of them must agree."""

    up_to: Decimal | None
    permission: str
    group: str
    currency: str
    approvers: int

    def covers(self, amount: Decimal | None, currency: str) -> bool:
        if self.currency and self.currency != currency:
            return False
        if self.up_to is None:
            return amount is None or amount >= 0
        return amount is not None and 0 <= amount <= self.up_to


@dataclass(frozen=True)
class Policy:
    """Who may decide one approval: what its tool's rule says, the host's settings laid over."""

    permission: str
    group: str
    approvers: int
    bands: tuple[Band, ...] | None


def rights_of(user: Any) -> Rights | None:
    """Return what `user` (or the user with that primary key) may do now; None for nobody."""
    found = get_user_model()._default_manager.filter(pk=getattr(user, "pk", user) or None).first()
    if found is None:
        return None
    is_superuser = found.is_superuser
    found.is_superuser = False  # in memory only: the backends then tell what was really granted
    permissions = frozenset(found.get_all_permissions())
    return Rights(
        user_id=found.pk,
        username=found.get_username(),
        is_active=found.is_active,
        is_staff=found.is_staff,
        is_superuser=is_superuser,
        permissions=permissions,
        groups=frozenset(found.groups.values_list("name", flat=True)),
        tenant=tenant_of(found),
    )


def policy_for(tool: str, rule: Mapping[str, Any]) -> Policy:
    """Return the policy in force now for a call of `tool` that was asked under `rule`."""
    settings = approval_settings()
    over = settings.RULES.get(tool) or settings.RULES.get("*") or {}
    permission = str(over.get("permission") or rule.get("permission") or "")
    group = str(over.get("group") or rule.get("group") or "")
    bands = tuple(band_from(one) for one in over["limits"]) if "limits" in over else None
    if not permission and not group and bands is None:
        permission = settings.DEFAULT_PERMISSION
    approvers = max(1, int(over.get("approvers") or 1), int(rule.get("approvers") or 1))
    return Policy(permission, group, approvers, bands)


def band_from(given: Mapping[str, Any]) -> Band:
    up_to = given.get("up_to")
    return Band(
        up_to=None if up_to is None else Decimal(str(up_to)),
        permission=str(given.get("permission") or ""),
        group=str(given.get("group") or ""),
        currency=str(given.get("currency") or ""),
        approvers=max(1, int(given.get("approvers") or 1)),
    )


def read_amount(value: Any) -> Decimal | None:
    """Return an amount as a number, or None for what is none."""
    if value is None or isinstance(value, bool):
        return None
    try:
        found = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def amount_of(approval: Approval) -> Decimal | None:
    """Return what is at stake: the larger of what was asked and what would run after an edit."""
    amounts = [read_amount(approval.rule.get(name)) for name in ("amount", "edited_amount")]
    return max((one for one in amounts if one is not None), default=None)


def why_not(
    rights: Rights | None, approval: Approval, amount: Decimal | None, policy: Policy | None = None
) -> str:
    """Return one sentence why these rights do not suffice to decide, or "" if they do."""
    policy = policy or policy_for(approval.tool, approval.rule)
    if rights is None or not rights.is_active:
        return "the account is not active."
    if rights.tenant != approval.tenant:
        return "it belongs to another tenant."
    if policy.permission and policy.permission not in rights.permissions:
        extra = " Being a superuser does not replace it." if rights.is_superuser else ""
        return f"the permission {policy.permission} is missing.{extra}"
    if policy.group and not rights.groups & {policy.group, approval.escalated_to or policy.group}:
        extra = " Being a superuser does not replace it." if rights.is_superuser else ""
        return f"only members of the group {policy.group} may.{extra}"
    if approval.requester_id == rights.user_id and not allowed_by_name(
        approval_settings().REQUESTER_MAY_DECIDE, rights
    ):
        return "nobody decides what they asked for themselves."
    return _above_limit(rights, approval, amount, policy)


def _above_limit(rights: Rights, approval: Approval, amount: Decimal | None, policy: Policy) -> str:
    if policy.bands is None:
        return ""
    fitting = [band for band in policy.bands if band.covers(amount, approval.currency)]
    what = (
        "a call without an amount" if amount is None else f"{amount:f} {approval.currency}".strip()
    )
    if not fitting:
        return f"no rule covers {what}, so nobody may."
    if not any(rights.has(band.permission, band.group) for band in fitting):
        return f"{what} is above what they may decide."
    return ""


def nobody_may(approval: Approval) -> str:
    """Return why nobody at all may decide, or ""."""
    policy = policy_for(approval.tool, approval.rule)
    amount = amount_of(approval)
    if policy.bands is None or any(b.covers(amount, approval.currency) for b in policy.bands):
        return ""
    what = (
        "a call without an amount" if amount is None else f"{amount:f} {approval.currency}".strip()
    )
    return f"No rule covers {what}, so nobody may decide this."


def voices_missing(agreed: Sequence[Rights], approval: Approval, amount: Decimal | None) -> int:
    """Return how many more people must agree: the least over all limits that fit."""
    policy = policy_for(approval.tool, approval.rule)
    if policy.bands is None:
        return max(0, policy.approvers - len(agreed))
    missing = [
        max(policy.approvers, band.approvers)
        - sum(1 for rights in agreed if rights.has(band.permission, band.group))
        for band in policy.bands
        if band.covers(amount, approval.currency)
    ]
    return max(0, min(missing)) if missing else policy.approvers


def allowed_by_name(setting: bool | Sequence[str], rights: Rights) -> bool:
    """Say whether a setting that is True or a list of user names holds for this person."""
    return setting if isinstance(setting, bool) else rights.username in setting


def visible_to(rights: Rights | None, own: bool = True) -> Q:
    """Return the condition under which an approval may be seen by these rights.

    Seen by: who holds what its rule asks for (whatever the amount), who asked for it (`own`), and
    who holds `approvals.view_approval`; a superuser holds that one, as everywhere in Django.
    """
    nobody = Q(pk__in=[])
    if rights is None or not rights.is_active:
        return nobody
    tenant = Q(tenant=rights.tenant)
    if rights.is_superuser or "approvals.view_approval" in rights.permissions:
        return tenant
    mine = Q(requester_id=rights.user_id) if own else nobody
    return tenant & (mine | decidable_by(rights))


def decidable_by(rights: Rights) -> Q:
    """Return the condition that the permission and the group of an approval's rule are held."""
    nobody = Q(pk__in=[])
    groups = Q(group="") | Q(group__in=rights.groups) | Q(escalated_to__in=rights.groups)
    named = Q(permission__in=rights.permissions) | (Q(permission="") & ~Q(group=""))
    if not rights.permissions and not rights.groups:
        named = nobody  # as it would come out; said here, so that the rest finds its index
    rules = approval_settings().RULES
    tools = [
        tool
        for tool, rule in rules.items()
        if any(
            rights.has(one.permission, one.group) for one in map(band_from, rule.get("limits", ()))
        )
    ]
    by_limit = Q(tool__in=[tool for tool in tools if tool != "*"]) if tools else nobody
    if "*" in tools:
        by_limit |= ~Q(tool__in=[tool for tool in rules if tool != "*"])
    return (named & groups) | (Q(permission="", group="") & by_limit)
