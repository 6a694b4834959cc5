"""The decision page and what can be done on it. A GET shows; only a POST with its token decides."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import redirect
from django.template.loader import select_template
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from agentruntime.models import DatabaseTime
from approvals.claims import claim, holds, release
from approvals.decide import decide
from approvals.exceptions import (
    ApprovalError,
    ApprovalNotFound,
    InvalidEdit,
    InvalidReason,
    NotAllowed,
)
from approvals.forms import DecisionForm, seconds_since_shown, shown_token
from approvals.history import note_refused
from approvals.models import Approval, Door
from approvals.permissions import rights_of
from approvals.queue import may_open_queue, next_for, pulse
from approvals.story import call_of, tell_story
from approvals.visible import plain, shortened


def show(
    admin: Any,
    request: HttpRequest,
    object_id: Any,
    form: DecisionForm | None = None,
    status: int = 200,
) -> HttpResponse:
    """Print the page of one approval. A form that was refused keeps what was typed."""
    if form is None and request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    approval = visible_or_404(admin, request, object_id)
    rights = rights_of(request.user)
    story = tell_story(approval, rights)
    if form is None:
        token = shown_token(approval, request.user)
        form = DecisionForm(approval, initial={"digest": approval.digest, "shown": token})
    now_waiting = next_for(rights, after=approval) if rights else None
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "media": admin.media,
        "title": plain(shortened(str(approval), 100)),
        "subtitle": None,
        "original": approval,
        "approval": approval,
        "story": story,
        "form": form,
        "call": call_of(approval),
        "call_template": call_template(approval).template.name,
        "is_claimed": approval.claimed_by_id is not None and holds(approval, approval.now),
        "next": now_waiting,
        "stamp": stamp_of(approval),
        "is_popup": False,
    }
    page = TemplateResponse(
        request, "admin/approvals/approval/decision.html", context, status=status
    )
    page["Referrer-Policy"] = "same-origin"
    page["Cache-Control"] = "no-store"
    return page


def call_template(approval: Approval) -> Any:
    """Return the template that shows this tool's calls: a host's own, or ours."""
    names = [f"approvals/tools/{approval.tool}.html", "admin/approvals/approval/_call.html"]
    return select_template(names if "/" not in approval.tool else names[1:])


def visible_or_404(admin: Any, request: HttpRequest, object_id: Any) -> Approval:
    if not may_open_queue(rights_of(request.user)):
        raise PermissionDenied
    try:
        key = uuid.UUID(str(object_id))
    except ValueError:
        raise Http404 from None
    from_queue = admin.get_queryset(request).annotate(now=DatabaseTime()).filter(pk=key).first()
    if from_queue is None:
        raise Http404
    found: Approval = from_queue
    return found


def take_decision(admin: Any, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """Decide what the form says, and show the page again, with what became of it."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    try:
        approval = visible_or_404(admin, request, pk)
    except (Http404, PermissionDenied):
        note_refused(pk, request.user, Door.ADMIN, ApprovalNotFound(approval=pk))
        raise
    form = DecisionForm(approval, request.POST)
    if not form.is_valid():
        return show(admin, request, pk, form, status=400)
    given = form.cleaned_data
    try:
        decision = decide(
            approval_id=pk,
            verdict=given["verdict"],
            user=request.user,
            digest=given["digest"],
            reason=given["reason"],
            arguments=form.edits(),
            door=Door.ADMIN,
            seconds_shown=seconds_since_shown(given["shown"], approval, request.user),
        )
    except (InvalidEdit, InvalidReason) as refused:
        form.add_error("reason" if isinstance(refused, InvalidReason) else None, str(refused))
        return show(admin, request, pk, form, status=400)
    except NotAllowed as refused:
        messages.error(request, str(refused))
        return show(admin, request, pk, DecisionForm(approval, request.POST), status=403)
    except ApprovalError as refused:
        messages.warning(request, str(refused))
        return redirect(page_of(approval))
    told = _("You %(what)s this.") % {"what": decision.what}
    if not decision.is_final:
        told += " " + _("Others have to agree before it runs.")
    messages.success(request, told)
    return redirect(page_of(approval))


def take_claim(admin: Any, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    return _claiming(admin, request, pk, claim)


def give_back(admin: Any, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    return _claiming(admin, request, pk, release)


def _claiming(admin: Any, request: HttpRequest, pk: uuid.UUID, verb: Any) -> HttpResponse:
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    approval = visible_or_404(admin, request, pk)
    try:
        verb(approval_id=pk, user=request.user)
    except NotAllowed as refused:
        messages.error(request, str(refused))
        return show(admin, request, pk, DecisionForm(approval), status=403)
    except ApprovalError as refused:
        messages.warning(request, str(refused))
    return redirect(page_of(approval))


def open_next(admin: Any, request: HttpRequest) -> HttpResponse:
    """Go to the oldest approval that waits for this person, or back to the queue."""
    rights = rights_of(request.user)
    if not may_open_queue(rights):
        raise PermissionDenied
    found = next_for(rights) if rights else None
    return redirect(page_of(found) if found else reverse("admin:approvals_approval_changelist"))


def queue_pulse(admin: Any, request: HttpRequest) -> HttpResponse:
    """Answer a few bytes that change when the queue does: what the page polls without a socket."""
    rights = rights_of(request.user)
    if not may_open_queue(rights):
        raise PermissionDenied
    return JsonResponse(pulse(rights))


def approval_pulse(admin: Any, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """The same for one approval."""
    return JsonResponse({"stamp": stamp_of(visible_or_404(admin, request, pk))})


def stamp_of(approval: Approval) -> str:
    """Return a word that changes whenever the page of an approval would."""
    call = call_of(approval)
    parts = (
        approval.status,
        approval.outcome,
        approval.digest[:12],
        str(approval.claimed_by_id or ""),
        str(approval.decisions.count()),
        call.status if call else "",
    )
    return ".".join(parts)


def page_of(approval: Approval) -> str:
    return reverse("admin:approvals_approval_change", args=[approval.pk])
