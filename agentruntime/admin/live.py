"""A run as it happens, in the admin: a page, and what is new on it as JSON."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from agentruntime.admin.picture import Picture, picture_of, shown_name
from agentruntime.admin.windows import Window
from agentruntime.exceptions import UnknownGraph
from agentruntime.graph.definition import BRANCHES, END, START, StateGraph
from agentruntime.graph.registry import get_graph
from agentruntime.models import (
    CallStatus,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    Run,
    RunStatus,
)
from agentruntime.pages.calls import cut, masked, whom_it_waits_for
from agentruntime.pages.news import news_of
from agentruntime.stored_events import as_text

STEPS = 200
CALLS = 100
NODE_EVENTS = 400


class LiveWindow(Window):
    """The window on runs, with a live page for each."""

    def get_urls(self) -> list[Any]:
        pages = [
            path(
                f"<uuid:run_id>/{place}",
                self.admin_site.admin_view(require_safe(view)),
                name=f"agentruntime_run_{name}",
            )
            for place, view, name in (
                ("live/", self.live_view, "live"),
                ("live/news/", self.news_view, "news"),
            )
        ]
        return [*pages, *super().get_urls()]

    @admin.display(description=gettext_lazy("as it happens"))
    def live_link(self, run: Run) -> SafeString:
        place = reverse("admin:agentruntime_run_live", args=[run.pk])
        return format_html('<a href="{}">{}</a>', place, _("Live"))

    def live_view(self, request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        """Show what has happened so far; the page's script follows from there."""
        run = self._run(request, run_id)
        graph = _graph(run)
        now = facts_of(request, run, graph)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Run %(run)s, live") % {"run": str(run.pk)[:8]},
            "run": run,
            "now": now,
            "picture": _picture(graph),
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/agentruntime/run/live.html", context)

    def news_view(self, request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        """Tell what is new after event `after`; only its number where nothing is."""
        run = self._run(request, run_id)
        given = request.GET.get("after", "")
        after = int(given) if given.isascii() and given.isdecimal() and len(given) < 19 else 0
        if after == run.thread.event_count:
            return JsonResponse({"seq": after})
        return JsonResponse(facts_of(request, run, _graph(run), after))

    def _run(self, request: HttpRequest, run_id: uuid.UUID) -> Run:
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = Run.objects.select_related("thread", "user").filter(pk=run_id).first()
        if run is None:
            raise Http404
        return run


def facts_of(
    request: HttpRequest, run: Run, graph: StateGraph | None, after: int = 0
) -> dict[str, Any]:
    """Return what the page shows, of the steps those after event `after`.

    The thread was read first, so that what happens meanwhile is at worst told twice.
    """
    places = places_of(run, graph)
    return {
        "seq": run.thread.event_count,
        "status": run.status,
        "status_label": run.get_status_display(),
        "note": _note(run),
        "active": not run.has_ended,
        "places": places,
        "at": ", ".join(map(shown_name, places)),
        "steps": list(_steps(run, after)),
        "calls": list(_calls(run)),
        "waits": [_wait(request, run, row) for row in _open(run)],
    }


def places_of(run: Run, graph: StateGraph | None) -> list[str]:
    """Return the nodes of the graph that the run is at: several while branches are at work."""
    if run.status == RunStatus.COMPLETED:
        return [END]
    started = run.events.filter(thread=run.thread_id, type="node.started").order_by("-seq")
    for event in started[:NODE_EVENTS]:
        node = str(event.data.get("node", ""))
        if event.data.get("branch") is not None:
            continue
        if node == BRANCHES:
            return _branch_places(run)
        # What is no node here is one of an agent that a call asks.
        if graph is None or node in graph.nodes:
            return [node]
    return [START]


def _branch_places(run: Run) -> list[str]:
    """Return where the branches are that the run has opened last, or else where they meet."""
    rows = run.branch_steps.filter(thread=run.thread_id).order_by("-id")
    opened = next((one.opened_at for one in rows[:NODE_EVENTS] if one.opened_at.isdecimal()), "")
    newest: dict[tuple[str, int], str] = {}
    until: dict[tuple[str, int], str] = {}
    within = Q(opened_at=opened) | Q(opened_at__startswith=f"{opened}/")
    for row in rows.filter(within).order_by("id"):
        branch = (row.opened_at, row.index)
        if row.number == 0:
            until[branch] = str(row.result.get("until", ""))
        newest[branch] = row.next_node
    still = [node for branch, node in newest.items() if node not in (until.get(branch), BRANCHES)]
    return list(dict.fromkeys(still or until.values()))


def _graph(run: Run) -> StateGraph | None:
    try:
        return get_graph(run.graph)
    except UnknownGraph:
        return None


def _picture(graph: StateGraph | None) -> Picture | None:
    return None if graph is None else picture_of(graph)


def _note(run: Run) -> str:
    if run.stop_requested_at is not None and not run.has_ended:
        return _("It is being stopped.")
    if run.is_in_line and run.status == RunStatus.QUEUED:
        return _("Waits for another run of its thread to end.")
    if run.status == RunStatus.QUEUED:
        return _("Waits for a worker.")
    return cut(" ".join(part for part in (run.error_code, run.error_detail) if part))


def _steps(run: Run, after: int) -> Iterable[dict[str, Any]]:
    found = run.events.filter(thread=run.thread_id, seq__gt=after).order_by("-seq")[:STEPS]
    events = list(found)[::-1]
    for event, one in zip(events, news_of(events), strict=True):
        said = event.data.get("content") if event.type == "message.added" else None
        words = f"{event.data.get('role', '')}: {cut(said)}" if said else one.words
        yield {"seq": one.seq, "at": as_text(one.at), "type": one.type, "words": words}


def _calls(run: Run) -> Iterable[dict[str, Any]]:
    rows = list(run.tool_executions.order_by("-id")[:CALLS])[::-1]
    for row in rows:
        yield {
            "key": row.pk,
            "tool": row.tool,
            "status": row.status,
            "label": CallStatus(row.status).label,
            "attempts": row.attempts,
            "words": _in_a_line(row.arguments),
            "url": reverse("admin:agentruntime_toolexecution_change", args=[row.pk]),
        }


def _in_a_line(arguments: Any) -> str:
    """Return a call's arguments in one line, what is secret in them hidden."""
    if not isinstance(arguments, dict):
        return ""
    line = ", ".join(f"{name}: {value}" for name, value in masked(arguments).items())
    return line if len(line) <= 200 else f"{line[:200]}…"


def _open(run: Run) -> list[Interrupt]:
    rows = Interrupt.objects.filter(run=run, status=InterruptStatus.OPEN).order_by("created_at")
    return list(rows.select_related("tool_execution"))


def _wait(request: HttpRequest, run: Run, row: Interrupt) -> dict[str, Any]:
    asked = row.kind == InterruptKind.QUESTION
    starter = run.user.get_username() if run.user else _("whoever began the run")
    text, url = _way_to(request, row)
    return {
        "id": str(row.pk),
        "kind": row.get_kind_display(),
        "message": cut(row.message or row.get_kind_display()),
        "whom": starter if asked else whom_it_waits_for(row),
        "since": as_text(row.created_at),
        "link": text,
        "url": url,
    }


def _way_to(request: HttpRequest, row: Interrupt) -> tuple[str, str]:
    """Return where an open question is answered, as far as the reader may: words and address."""
    approval = getattr(row, "approval", None)
    if approval is not None:
        opts = approval._meta
        try:
            name = f"admin:{opts.app_label}_{opts.model_name}_change"
            return _("Open the approval"), reverse(name, args=[approval.pk])
        except NoReverseMatch:
            pass
    by_people = row.kind in (InterruptKind.QUESTION, InterruptKind.OUTCOME)
    if by_people and request.user.has_perm("agentruntime.answer_interrupt"):
        return _("Answer"), reverse("admin:agentruntime_interrupt_answer", args=[row.pk])
    return _("Open the question"), reverse("admin:agentruntime_interrupt_change", args=[row.pk])
