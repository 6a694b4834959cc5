"""What was true when somebody decided, as plain JSON: what they saw, the rule, their rights."""

from __future__ import annotations

from typing import Any

from approvals.models import Approval
from approvals.permissions import Rights, policy_for


def seen_then(approval: Approval) -> dict[str, Any]:
    return {
        "title": approval.title,
        "tool": approval.tool,
        "arguments": approval.asked_arguments,
        "amount": approval.rule.get("amount"),
        "currency": approval.currency,
        "target": approval.target,
    }


def rule_then(approval: Approval) -> dict[str, Any]:
    policy = policy_for(approval.tool, approval.rule)
    bands = None
    if policy.bands is not None:
        bands = [
            {"up_to": None if b.up_to is None else f"{b.up_to:f}", "permission": b.permission,
             "group": b.group, "currency": b.currency, "approvers": b.approvers}
            for b in policy.bands
        ]  # fmt: skip
    return {
        **approval.rule, "permission": policy.permission, "group": policy.group,
        "approvers": policy.approvers, "limits": bands, "escalated_to": approval.escalated_to,
    }  # fmt: skip


def rights_then(rights: Rights, approval: Approval) -> dict[str, Any]:
    policy = policy_for(approval.tool, approval.rule)
    named = {policy.permission, *(band.permission for band in policy.bands or ())} - {""}
    return {
        "permissions": sorted(rights.permissions & named),
        "groups": sorted(rights.groups),
        "superuser": rights.is_superuser,
        "own_request": approval.requester_id == rights.user_id,
        "tenant": rights.tenant,
    }
