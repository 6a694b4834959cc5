"""Several at once: first the explicit list is shown, then it is decided in bounded steps."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from approvals.bulk import decide_some, objection
from approvals.conf import approval_settings
from approvals.exceptions import ApprovalNotFound
from approvals.history import note_refused
from approvals.models import Approval, Door, Verdict
from approvals.permissions import rights_of
from approvals.queue import may_open_queue

MAX_ITEMS = 5000


def confirm(
    admin: Any, request: HttpRequest, queryset: QuerySet[Approval], verdict: str
) -> HttpResponse:
    """Show what would be decided, one line each; what cannot be is shown apart, with the reason."""
    rights = rights_of(request.user)
    found = list(queryset[:MAX_ITEMS])
    refused = [(one, objection(one, rights, verdict)) for one in found]
    items = [one for one, why in refused if not why]
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "media": admin.media,
        "title": _("Approve these?") if verdict == Verdict.APPROVE else _("Decline these?"),
        "verdict": verdict,
        "items": items,
        "refused": [(one, why) for one, why in refused if why],
        "packed": json.dumps([[str(one.pk), one.digest] for one in items]),
        "sums": sums_of(items),
    }
    return TemplateResponse(request, "admin/approvals/approval/bulk_confirm.html", context)


def sums_of(items: list[Approval]) -> list[tuple[str, str]]:
    """Return the sum per currency, as text."""
    sums: dict[str, Any] = {}
    for one in items:
        if one.amount is not None:
            sums[one.currency] = sums.get(one.currency, 0) + one.amount
    return [(f"{total.normalize():f}", currency) for currency, total in sorted(sums.items())]


def step(admin: Any, request: HttpRequest) -> HttpResponse:
    """Decide the next few of the list that was confirmed, and show the results so far."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    rights = rights_of(request.user)
    if not may_open_queue(rights):
        for approval_id in named(request):
            told = ApprovalNotFound(approval=approval_id)
            note_refused(approval_id, request.user, Door.BULK, told)
        raise PermissionDenied
    verdict = request.POST.get("verdict", "")
    if verdict not in Verdict.values:
        raise SuspiciousOperation("A verdict is approve or decline.")
    items = _unpacked(request.POST.get("items", ""))
    reason = request.POST.get("reason", "")
    count = approval_settings().BULK_STEP
    results = decide_some(items[:count], rights, request.user, verdict, reason)
    titles = admin.get_queryset(request).in_bulk([one.approval_id for one in results])
    done, failed = _number(request, "done"), _number(request, "failed")
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "media": admin.media,
        "title": _("Results"),
        "verdict": verdict,
        "reason": reason,
        "results": [(one, titles.get(uuid.UUID(one.approval_id))) for one in results],
        "packed": json.dumps(items[count:]),
        "left": len(items[count:]),
        "next_count": min(count, len(items[count:])),
        "done": done + sum(1 for one in results if one.done),
        "failed": failed + sum(1 for one in results if not one.done),
    }
    return TemplateResponse(request, "admin/approvals/approval/bulk_results.html", context)


def named(request: HttpRequest) -> list[str]:
    """Return the ids of those that the next step of a list would decide, if it can be read."""
    try:
        items = _unpacked(request.POST.get("items", ""))
    except SuspiciousOperation:
        return []
    return [approval_id for approval_id, _digest in items[: approval_settings().BULK_STEP]]


def _unpacked(text: str) -> list[list[str]]:
    try:
        found = json.loads(text or "[]")
        pairs = [[str(uuid.UUID(key)), str(digest)] for key, digest in found]
    except (ValueError, TypeError, AttributeError):
        raise SuspiciousOperation("The list of approvals cannot be read.") from None
    return pairs[:MAX_ITEMS]


def _number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 6 else 0
