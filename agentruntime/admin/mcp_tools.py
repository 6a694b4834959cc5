"""What MCP servers offer, for staff: a tool that its server describes otherwise is let in here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentruntime.admin.windows import Window, show_json
from agentruntime.mcp.catalogue import accept_tool
from agentruntime.models import McpTool


class IsChanged(admin.SimpleListFilter):
    """Whether a tool is described otherwise than when it was let in."""

    title = gettext_lazy("changed")
    parameter_name = "changed"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("Yes")), ("no", _("No"))]

    def queryset(self, request: Any, queryset: QuerySet[McpTool]) -> QuerySet[McpTool]:
        same = {"digest": F("pinned_digest")}
        if self.value() == "yes":
            return queryset.exclude(**same)
        return queryset.filter(**same) if self.value() == "no" else queryset


@admin.register(McpTool)
class McpToolAdmin(Window):
    list_display = ("name", "server", "as_let_in", "is_offered", "listed_at")
    list_filter = (IsChanged, "is_offered")
    search_fields = ("name", "=server")
    json_fields = ("listing",)
    ordering = ("server", "name")
    actions = ("accept",)

    @admin.display(description=gettext_lazy("as it was let in"), boolean=True)
    def as_let_in(self, row: McpTool) -> bool:
        return not row.is_changed

    def has_accept_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruntime.change_mcptool"))

    @admin.action(
        description=gettext_lazy("Let in as its server describes it today"), permissions=["accept"]
    )
    def accept(self, request: HttpRequest, queryset: QuerySet[McpTool]) -> HttpResponse | None:
        """Show what the servers say; what is let in then is what was shown, and nothing else."""
        if "let_in" not in request.POST:
            return self._show(request, [row for row in queryset if row.is_changed])
        for row in queryset:
            if accept_tool(
                row.server, row.name, digest=request.POST.get(f"digest-{row.pk}") or "-"
            ):
                self.log_change(request, row, _("Let in as its server describes it"))
                told, level = _("%(tool)s is let in as it was shown."), messages.SUCCESS
            else:
                told, level = _("%(tool)s has changed again: not let in."), messages.WARNING
            self.message_user(request, told % {"tool": row}, level)
        return None

    def _show(self, request: HttpRequest, rows: list[McpTool]) -> HttpResponse | None:
        if not rows:
            self.message_user(request, _("None of these has changed."), messages.WARNING)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Let these tools in?"),
            "rows": [(row, show_json(row.listing)) for row in rows],
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/agentruntime/mcptool/accept.html", context)
