"""What waits, for whom: the conditions and the order behind the queue in the admin."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from agentruntime.exceptions import UnknownGraph
from agentruntime.graph import get_graph
from agentruntime.graph.registry import graph_names
from agentruntime.models import StatementTime
from approvals.conf import approval_settings
from approvals.models import Approval, Status
from approvals.permissions import Band, Rights, allowed_by_name, band_from, decidable_by, visible_to

MOST_LOOKED_AT = 500


def queue_for(rights: Rights | None) -> QuerySet[Approval]:
    """Return every approval these rights may see, with `rank`: 0 waits for this person, 1 waits for
    others, 2 is closed."""
    found = Approval.objects.filter(visible_to(rights))
    if rights is None:
        return found
    return found.annotate(
        rank=Case(
            When(~Q(status=Status.PENDING), then=Value(2)),
            When(waits_for(rights), then=Value(0)),
            default=Value(1),
            output_field=IntegerField(),
        )
    ).select_related("claimed_by", "requester")


def is_long(found: QuerySet[Approval]) -> bool:
    """Say whether there are more than can be put in order for each look."""
    return found.order_by("created_at").values("pk")[:MOST_LOOKED_AT].count() == MOST_LOOKED_AT


def waits_for(rights: Rights) -> Q:
    """Return the condition that an approval waits and that these rights suffice to decide it.

    Close to `why_not`, for lists; whether a decision is taken is asked of `why_not` alone.
    """
    condition = Q(status=Status.PENDING) & decidable_by(rights) & _within_limits(rights)
    if not allowed_by_name(approval_settings().REQUESTER_MAY_DECIDE, rights):
        condition &= Q(requester__isnull=True) | ~Q(requester_id=rights.user_id)
    return condition


def _within_limits(rights: Rights) -> Q:
    rules = approval_settings().RULES
    limited = {tool: rule["limits"] for tool, rule in rules.items() if "limits" in rule}
    condition = Q()
    for tool, limits in limited.items():
        others = Q(tool__in=[name for name in rules if name != "*"])
        outside = others if tool == "*" else ~Q(tool=tool)
        inside = Q(pk__in=[])
        for band in map(band_from, limits):
            if rights.has(band.permission, band.group):
                inside |= _covered_by(band)
        condition &= outside | inside
    return condition


def _covered_by(band: Band) -> Q:
    covered = Q(amount__isnull=True) | Q(amount__gte=0)
    if band.up_to is not None:
        covered = Q(amount__gte=0, amount__lte=band.up_to)
    return covered & Q(currency=band.currency) if band.currency else covered


def may_open_queue(rights: Rights | None) -> bool:
    """Say whether the queue is anything to this person: a right to decide some kind, or to view."""
    if rights is None or not rights.is_active or not rights.is_staff:
        return False
    if rights.is_superuser or "approvals.view_approval" in rights.permissions:
        return True
    permissions, groups = known_rules()
    return bool(rights.permissions & permissions or rights.groups & groups)


def known_rules() -> tuple[set[str], set[str]]:
    """Return the permissions and groups that any tool's rule or any setting names."""
    settings = approval_settings()
    permissions, groups = {settings.DEFAULT_PERMISSION}, set()
    for rule in settings.RULES.values():
        for one in (rule, *rule.get("limits", ())):
            permissions.add(str(one.get("permission") or ""))
            groups.add(str(one.get("group") or ""))
    for rule in _rules_of_tools():
        permissions.add(rule.permission)
        groups.update((rule.group, rule.escalate_to))
    return permissions - {""}, groups - {""}


def _rules_of_tools() -> list[Any]:
    return [tool.approval for tool in _known_tools() if tool.approval is not None]


def gated_tools() -> list[str]:
    """Return the names of all known tools that a person may have to allow."""
    by_setting = {one for one in approval_settings().RULES if one != "*"}
    return sorted(by_setting | {tool.name for tool in _known_tools() if tool.approval is not None})


def _known_tools() -> list[Any]:
    found: list[Any] = []
    for name in graph_names():
        with suppress(UnknownGraph):
            found.extend(get_graph(name).tools.values())
    return found


def next_for(rights: Rights, after: Approval | None = None) -> Approval | None:
    """Return the oldest approval that waits for this person, another than `after`."""
    waiting = Approval.objects.filter(visible_to(rights)).filter(waits_for(rights))
    if after is not None:
        waiting = waiting.exclude(pk=after.pk)
    return waiting.order_by("created_at", "id").first()


def pulse(rights: Rights | None) -> dict[str, Any]:
    """Return a small answer that changes whenever the queue of these rights does.

    Of a queue of many thousands the beginning is looked at: the oldest `MOST_LOOKED_AT`.
    """
    pending = Approval.objects.filter(visible_to(rights), status=Status.PENDING)
    first = pending.order_by("created_at", "id")[:MOST_LOOKED_AT]
    rows = list(first.values_list("pk", "digest", "claimed_by_id"))
    late = pending.filter(expires_at__lt=StatementTime()).order_by("expires_at")
    return {
        "waiting": len(rows),
        "is_longer": len(rows) == MOST_LOOKED_AT,
        "overdue": late[:MOST_LOOKED_AT].count(),
        "stamp": hashlib.sha256(repr(rows).encode()).hexdigest()[:16],
    }
