"""What the pages show. A thread that is not one's own does not exist: 404."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import TemplateDoesNotExist
from django.template.loader import get_template, render_to_string
from django.views.decorators.http import require_GET

from agentruntime.graph.registry import graph_names
from agentruntime.models import Message, Run, RunStatus, Thread
from agentruntime.pages.access import own_thread, page
from agentruntime.pages.news import news_of
from agentruntime.pages.timeline import Entry, read_timeline

TALKS = 50
NEWS = 200


@page
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """The talks of the person, and a box to begin another."""
    facts = {"talks": talks_of(request), "graphs": graph_names(), "key": uuid.uuid4()}
    return render(request, "agentruntime/home.html", facts | {"examples": _examples(request)})


@page
@require_GET
def thread(request: HttpRequest, thread_id: uuid.UUID) -> HttpResponse:
    """One conversation, with its run live."""
    found = own_thread(request, thread_id)
    facts = thread_facts(found) | {"talks": talks_of(request), "key": uuid.uuid4()}
    return render(request, "agentruntime/thread.html", facts)


@page
@require_GET
def live(request: HttpRequest, thread_id: uuid.UUID) -> HttpResponse:
    """What is new after event `after`: nothing, or the entries as HTML, and the log's new lines."""
    found = own_thread(request, thread_id)
    after = _whole_number(request.GET.get("after"))
    if after == found.event_count:
        return JsonResponse({"seq": after})
    facts = thread_facts(found, after)
    run = facts["run"]
    return JsonResponse(
        {
            "seq": found.event_count,
            "status": run.status if run else "",
            "status_label": run.get_status_display() if run else "",
            "active": facts["active"],
            "entries": [_entry_body(request, found, one) for one in facts["entries"]],
            "news": render_to_string("agentruntime/news.html", facts),
        }
    )


def thread_facts(found: Thread, after: int = 0) -> dict[str, Any]:
    """Return what the page of a thread shows, of the log what comes after event `after`.

    The thread was read first, so that what happens meanwhile is at worst sent twice.
    """
    run = found.runs.order_by("-created_at").first()
    news = found.events.filter(seq__gt=max(after, found.event_count - NEWS)).order_by("seq")
    return {
        "thread": found,
        "run": run,
        "active": run is not None and not run.has_ended,
        "entries": read_timeline(found, run),
        "news": news_of(news),
    }


def talks_of(request: HttpRequest) -> list[Thread]:
    """Return the person's newest threads, each with where its last run stands."""
    runs = Run.objects.filter(thread=OuterRef("pk")).order_by("-created_at")
    said = Message.objects.filter(thread=OuterRef("pk"), role="user").order_by("ordinal")
    talks = Thread.objects.owned_by(request.user).annotate(
        first_words=Subquery(said.values("content")[:1]),
        last_status=Subquery(runs.values("status")[:1]),
        last_graph=Subquery(runs.values("graph")[:1]),
    )
    found = list(talks.order_by("-created_at")[:TALKS])
    for talk in found:
        talk.last_status_label = RunStatus(talk.last_status).label if talk.last_status else ""
    return found


def _entry_body(request: HttpRequest, found: Thread, entry: Entry) -> dict[str, str]:
    facts = {"entry": entry, "thread": found}
    html = render_to_string("agentruntime/entry.html", facts, request)
    return {"key": entry.key, "rev": entry.revision, "html": html}


def _examples(request: HttpRequest) -> str:
    """Return the page's examples, which a site (here the demo) brings as a template of its own."""
    try:
        return get_template("agentruntime/examples.html").render({}, request)
    except TemplateDoesNotExist:
        return ""


def _whole_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
