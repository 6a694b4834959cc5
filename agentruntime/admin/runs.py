"""Threads and runs: what happened to them, and the verbs that staff have: stop, retry, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from agentruntime.admin.live import LiveWindow
from agentruntime.admin.windows import Window, link_to, link_to_list, one_of
from agentruntime.exceptions import AgentRuntimeError
from agentruntime.graph.registry import graph_names
from agentruntime.lifecycle import delete_thread, retry_run, stop_run
from agentruntime.models import (
    RETRYABLE,
    Checkpoint,
    Event,
    Interrupt,
    Message,
    Run,
    Thread,
    ToolExecution,
)

OPERATE = "agentruntime.operate_run"


@admin.register(Thread)
class ThreadAdmin(Window):
    list_display = ("__str__", "user", "tenant", "message_count", "head_version", "created_at")
    search_fields = ("=id", "=tenant", "title", "user__username")
    list_select_related = ("user",)
    ordering = ("-created_at",)
    actions = ("delete_threads",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*super().get_fields(request, obj), "rows"]

    @admin.display(description=gettext_lazy("what belongs to it"))
    def rows(self, thread: Thread) -> SafeString:
        return _links(thread.pk)

    @admin.action(
        description=gettext_lazy("Delete threads with all that belongs to them"),
        permissions=["erase"],
    )
    def delete_threads(self, request: HttpRequest, queryset: QuerySet[Thread]) -> None:
        for thread in queryset:
            delete_thread(thread_id=thread.pk)
            self.log_deletions(request, [thread])
        self.message_user(request, _("The threads are deleted, their open questions closed."))

    def has_erase_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruntime.delete_thread"))


@admin.register(Run)
class RunAdmin(LiveWindow):
    list_display = (
        "short_id",
        "graph",
        "status",
        "live_link",
        "user",
        "error_code",
        "lease",
        "created_at",
        "finished_at",
    )
    list_filter = ("status", one_of("graph", gettext_lazy("graph"), graph_names))
    search_fields = ("=id", "=thread__id", "=error_code", "user__username")
    list_select_related = ("user",)
    ordering = ("-created_at", "id")
    json_fields = ("config",)
    hidden_fields = ("request_digest", "idempotency_scope")
    actions = ("stop_runs", "retry_runs")
    change_form_template = "admin/agentruntime/run/change_form.html"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*super().get_fields(request, obj), "rows"]

    @admin.display(description=gettext_lazy("run"))
    def short_id(self, run: Run) -> str:
        return str(run.pk)[:8]

    @admin.display(description=gettext_lazy("held by"))
    def lease(self, run: Run) -> str:
        return f"{run.lease_owner} ({run.fencing_token})" if run.lease_owner else "-"

    @admin.display(description=gettext_lazy("what belongs to it"))
    def rows(self, run: Run) -> SafeString:
        return _links(run.thread_id, run__id__exact=run.pk)

    @admin.action(description=gettext_lazy("Stop runs"), permissions=["operate"])
    def stop_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        self._each(request, queryset, stop_run, _("stopped"))

    @admin.action(description=gettext_lazy("Retry failed runs"), permissions=["operate"])
    def retry_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        self._each(request, queryset, retry_run, _("queued again"))

    def _each(
        self, request: HttpRequest, runs: QuerySet[Run], verb: Callable[..., Run], done: str
    ) -> None:
        for run in runs:
            try:
                verb(run_id=run.pk)
            except AgentRuntimeError as error:
                self.message_user(request, str(error), messages.WARNING)
            else:
                self.log_change(request, run, done)
                self.message_user(
                    request, _("Run %(run)s: %(done)s.") % {"run": str(run.pk)[:8], "done": done}
                )

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(OPERATE))

    def get_urls(self) -> list[Any]:
        verbs = [
            path(
                f"<uuid:run_id>/{name}/",
                self.admin_site.admin_view(require_POST(view)),
                name=f"agentruntime_run_{name}",
            )
            for name, view in (
                ("stop", self._view(stop_run, _("stopped"))),
                ("retry", self._view(retry_run, _("queued again"))),
            )
        ]
        return [*verbs, *super().get_urls()]

    def _view(self, verb: Callable[..., Run], done: str) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, run_id: Any) -> HttpResponse:
            if not self.has_operate_permission(request):
                return HttpResponse(_("You may not stop or retry runs."), status=403)
            self._each(request, Run.objects.filter(pk=run_id), verb, done)
            return HttpResponseRedirect(reverse("admin:agentruntime_run_change", args=[run_id]))

        return view

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        run = self.get_object(request, object_id)
        extra = kwargs.setdefault("extra_context", {}) or {}
        may = self.has_operate_permission(request)
        extra["may_stop"] = may and run is not None and not run.has_ended
        extra["may_retry"] = may and run is not None and run.status in RETRYABLE
        kwargs["extra_context"] = extra
        return super().change_view(request, object_id, *args, **kwargs)


def _links(thread_id: Any, **narrower: Any) -> SafeString:
    """Links to the rows of a thread; calls and questions narrowed to a run, where one is given."""
    whole = {"thread__id__exact": thread_id}
    rows = [
        (Run, _("runs"), whole),
        (ToolExecution, _("tool calls"), narrower or whole),
        (Interrupt, _("questions"), narrower or whole),
        (Message, _("messages"), whole),
        (Checkpoint, _("checkpoints"), whole),
        (Event, _("events"), whole),
    ]
    links = [link_to_list(model, text, **filters) for model, text, filters in rows]
    if narrower:
        links.insert(0, link_to(Thread(pk=thread_id), _("thread")))
    return format_html_join(" · ", "{}", ((link,) for link in links))
