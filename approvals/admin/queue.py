"""The queue: what waits for me first. Rows are read-only; everything else happens on the pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agentruntime.first_pages import FirstPages
from approvals.admin import bulk, dashboard, pages
from approvals.admin.filters import (
    AgentFilter,
    AmountFilter,
    KindFilter,
    QueueFilter,
    StatusFilter,
)
from approvals.exceptions import NotLetIn
from approvals.figures import in_words
from approvals.history import note_refused
from approvals.models import Approval, Door
from approvals.permissions import Rights, rights_of
from approvals.queue import is_long, may_open_queue, pulse, queue_for


class Queue(ChangeList):
    """Rows in the order of the work: mine first, the oldest first; of closed ones the newest.

    Mine are not looked for in a long queue: the filter shows them alone.
    """

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Approval]) -> list[Any]:
        if request.GET.get(ORDER_VAR):
            found: list[Any] = super().get_ordering(request, queryset)
            return found
        if request.GET.get("queue") == "closed":
            return ["-created_at", "-id"]
        if request.GET.get("queue") == "all":
            return ["-created_at", "-id"] if is_long(queryset) else ["rank", "-created_at", "-id"]
        return ["created_at", "id"] if is_long(queryset) else ["rank", "created_at", "id"]


@admin.register(Approval)
class ApprovalAdmin(admin.ModelAdmin):
    """Approvals as a queue. Nothing is edited here; a decision is the only change there is."""

    list_display = ("asked", "money", "aim", "age", "due", "state")
    list_display_links = ("asked",)
    list_filter = (QueueFilter, StatusFilter, KindFilter, AgentFilter, AmountFilter)
    search_fields = ("title", "tool", "target", "requester_name")
    list_per_page = 50
    list_max_show_all = 200
    paginator = FirstPages
    show_full_result_count = False
    actions = ("approve_selected", "decline_selected")
    change_list_template = "admin/approvals/approval/queue.html"
    object_history_template = "admin/approvals/approval/history.html"

    class Media:
        css = {"all": ("approvals/approvals.css",)}
        js = ("approvals/live.js", "approvals/queue.js")

    # --- who sees what -----------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is None:
            return may_open_queue(rights_for(request))
        return self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_open_queue(rights_for(request))

    def has_bulk_permission(self, request: HttpRequest) -> bool:
        return may_open_queue(rights_for(request))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        return queue_for(rights_for(request))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return Queue

    # --- columns -----------------------------------------------------------------------------

    @admin.display(description=_("Asked"), ordering="title")
    def asked(self, approval: Approval) -> str:
        return render_to_string("admin/approvals/approval/_asked.html", {"approval": approval})

    @admin.display(description=_("Amount"), ordering="amount")
    def money(self, approval: Approval) -> str:
        return render_to_string("admin/approvals/approval/_money.html", {"approval": approval})

    @admin.display(description=_("For"), ordering="target")
    def aim(self, approval: Approval) -> str:
        return render_to_string("admin/approvals/approval/_aim.html", {"approval": approval})

    @admin.display(description=_("Since"), ordering="created_at")
    def age(self, approval: Approval) -> str:
        return in_words((timezone.now() - approval.created_at).total_seconds())

    @admin.display(description=_("Until"), ordering="expires_at")
    def due(self, approval: Approval) -> str:
        return render_to_string("admin/approvals/approval/_due.html", {"approval": approval})

    @admin.display(description=_("State"), ordering="status")
    def state(self, approval: Approval) -> str:
        return render_to_string("admin/approvals/approval/_state.html", {"approval": approval})

    # --- pages -------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        def page(view: Any) -> Any:
            return self.admin_site.admin_view(lambda request, **kw: view(self, request, **kw))

        def door(view: Any, kind: str) -> Any:
            """A page that decides: who is not even let into the admin is noted."""
            inside = page(view)

            def guarded(request: HttpRequest, **kw: Any) -> HttpResponse:
                if request.method == "POST" and not self.admin_site.has_permission(request):
                    told = NotLetIn(user=str(request.user), reason="no active member of staff.")
                    for approval_id in [kw["pk"]] if "pk" in kw else bulk.named(request):
                        note_refused(approval_id, request.user, kind, told)
                answer: HttpResponse = inside(request, **kw)
                return answer

            return guarded

        name = "approvals_approval"
        return [
            path("pulse/", page(pages.queue_pulse), name=f"{name}_pulse"),
            path("next/", page(pages.open_next), name=f"{name}_next"),
            path("dashboard/", page(dashboard.show), name=f"{name}_dashboard"),
            path("bulk/", door(bulk.step, Door.BULK), name=f"{name}_bulk"),
            path(
                "<uuid:pk>/decide/",
                door(pages.take_decision, Door.ADMIN),
                name=f"{name}_decide",
            ),
            path("<uuid:pk>/claim/", page(pages.take_claim), name=f"{name}_claim"),
            path("<uuid:pk>/release/", page(pages.give_back), name=f"{name}_release"),
            path("<uuid:pk>/pulse/", page(pages.approval_pulse), name=f"{name}_one_pulse"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        more = {"pulse": pulse(rights_for(request)), "title": _("Approvals")}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return pages.show(self, request, object_id)

    @admin.action(description=_("Approve the selected ones …"), permissions=["bulk"])
    def approve_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> Any:
        return self._confirm(request, queryset, "approve")

    @admin.action(description=_("Decline the selected ones …"), permissions=["bulk"])
    def decline_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> Any:
        return self._confirm(request, queryset, "decline")

    def _confirm(self, request: HttpRequest, queryset: QuerySet[Approval], verdict: str) -> Any:
        if not queryset.exists():
            self.message_user(request, _("Nothing was selected."), messages.WARNING)
            return None
        return bulk.confirm(self, request, queryset, verdict)


def rights_for(request: HttpRequest) -> Rights | None:
    """Return the rights of who asks, read once per request."""
    if not hasattr(request, "_approval_rights"):
        request._approval_rights = rights_of(request.user)  # type: ignore[attr-defined]
    found: Rights | None = request._approval_rights  # type: ignore[attr-defined]
    return found
