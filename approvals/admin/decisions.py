"""The record in the admin: read-only, searched and exported by who holds the right."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    StreamingHttpResponse,
)
from django.urls import path

from agentruntime.first_pages import FirstPages
from approvals.exceptions import NotAllowed
from approvals.export import FORMATS, PERMISSION, export_decisions
from approvals.models import Decision
from approvals.permissions import rights_of


@admin.register(Decision)
class DecisionAdmin(admin.ModelAdmin):
    """Decisions as they were taken. Nothing can be added, changed or deleted, by anybody."""

    list_display = ("number", "at", "by", "verdict", "approval", "door", "is_final")
    list_filter = ("verdict", "door", "is_final")
    search_fields = ("by", "reason", "approval__title", "approval__target")
    list_select_related = ("approval",)
    paginator = FirstPages
    show_full_result_count = False
    fields = (
        "number", "approval", "verdict", "by", "at", "door", "reason", "is_final", "digest",
        "shown_digest", "arguments", "seen", "rule", "rights", "seconds_shown", "previous_hash",
        "hash",
    )  # fmt: skip
    change_list_template = "admin/approvals/decision/record.html"

    class Media:
        css = {"all": ("approvals/approvals.css",)}

    def get_queryset(self, request: HttpRequest) -> Any:
        rights = rights_of(request.user)
        tenant = rights.tenant if rights else ""
        return super().get_queryset(request).filter(approval__tenant=tenant)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-number",)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.export)
        return [path("export/", view, name="approvals_decision_export"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        rights = rights_of(request.user)
        more = {"may_export": bool(rights and PERMISSION in rights.permissions)}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def export(self, request: HttpRequest) -> Any:
        """Give the record out, as a file; a POST, for it leaves a trace."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        form = request.POST.get("format", "")
        if form not in FORMATS:
            form = "csv"
        try:
            lines = export_decisions(rights_of(request.user), form)
        except NotAllowed as refused:
            raise PermissionDenied(str(refused)) from None
        answer = StreamingHttpResponse(lines, content_type=FORMATS[form])
        answer["Content-Disposition"] = f'attachment; filename="decisions.{form}"'
        answer["X-Content-Type-Options"] = "nosniff"
        return answer

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
