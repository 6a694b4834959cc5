"""How the queue does: a page of figures and plots."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from approvals.permissions import rights_of


def show(admin: Any, request: HttpRequest) -> HttpResponse:
    """Print the figures of one tenant. Needs `approvals.view_dashboard`."""
    rights = rights_of(request.user)
    if rights is None or not request.user.has_perm("approvals.view_dashboard"):
        raise PermissionDenied
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "media": admin.media,
        "title": _("How the queue does"),
    }
    return TemplateResponse(request, "admin/approvals/approval/dashboard.html", context)
