"""What a person does on the pages: begin, write, answer, stop. Each is a POST and one verb."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from agentruntime.exceptions import AgentRuntimeError, ThreadBusy
from agentruntime.graph.json_values import NotJson, read_json
from agentruntime.graph.registry import graph_names
from agentruntime.lifecycle import resume_run, start_run, stop_run
from agentruntime.models import Interrupt, InterruptKind, Thread, tenant_of
from agentruntime.pages.access import own_thread, page


class MessageForm(forms.Form):
    """What a person writes. `key` makes a second click of one form the same request."""

    message = forms.CharField(max_length=20_000)
    key = forms.UUIDField()


class StartForm(MessageForm):
    """The first message of a conversation, and to whom."""

    graph = forms.ChoiceField(choices=lambda: [(name, name) for name in graph_names()])


@page
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Begin a conversation and go to its page."""
    form = StartForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Choose an agent and write a message.")
        return redirect("pages:home")
    try:
        run = start_run(
            graph=form.cleaned_data["graph"],
            input=form.cleaned_data["message"],
            user=request.user,
            tenant=tenant_of(request.user),
            idempotency_key=str(form.cleaned_data["key"]),
        )
    except AgentRuntimeError as error:
        messages.error(request, str(error))
        return redirect("pages:home")
    return redirect("pages:thread", run.thread_id)


@page
@require_POST
def send(request: HttpRequest, thread_id: uuid.UUID) -> HttpResponse:
    """Say the next thing in a conversation, to the agent that it is with."""
    found = own_thread(request, thread_id)
    form = MessageForm(request.POST)
    run = found.runs.order_by("-created_at").first()
    if not form.is_valid() or run is None:
        return _done(request, found, "Write a message.")
    return _attempt(
        request,
        found,
        lambda: start_run(
            graph=run.graph,
            input=form.cleaned_data["message"],
            thread_id=found.pk,
            user=request.user,
            tenant=tenant_of(request.user),
            idempotency_key=str(form.cleaned_data["key"]),
        ),
    )


@page
@require_POST
def stop(request: HttpRequest, thread_id: uuid.UUID) -> HttpResponse:
    """Stop what runs in a conversation."""
    found = own_thread(request, thread_id)
    run = found.runs.active().first()
    if run is None:
        return _done(request, found, "")
    return _attempt(request, found, lambda: stop_run(run_id=run.pk))


@page
@require_POST
def answer(request: HttpRequest, thread_id: uuid.UUID, interrupt_id: uuid.UUID) -> HttpResponse:
    """Answer a question that the agent asks the person it works for.

    Approvals are not answered here: others decide them.
    """
    found = own_thread(request, thread_id)
    questions = Interrupt.objects.filter(thread=found, kind=InterruptKind.QUESTION)
    asked = get_object_or_404(questions, pk=interrupt_id)
    try:
        value = _answer_in(request)
    except NotJson:
        return _done(request, found, "This answer has to be JSON.")
    return _attempt(
        request,
        found,
        lambda: resume_run(interrupt_id=asked.pk, value=value, user=request.user),
    )


def _answer_in(request: HttpRequest) -> Any:
    if "json" in request.POST:
        return read_json(request.POST["json"])
    return request.POST.get("text", "")


def _attempt(request: HttpRequest, found: Thread, change: Callable[[], Any]) -> HttpResponse:
    try:
        change()
    except ThreadBusy:
        return _done(request, found, "The agent is still at work here. Wait for it, or stop it.")
    except AgentRuntimeError as error:
        return _done(request, found, str(error))
    return _done(request, found, "")


def _done(request: HttpRequest, found: Thread, problem: str) -> HttpResponse:
    """Answer a script with JSON and a plain form with the page; no `problem` means all is well."""
    if request.accepts("text/html"):
        if problem:
            messages.error(request, problem)
        return redirect("pages:thread", found.pk)
    body = {"detail": problem} if problem else {"key": str(uuid.uuid4())}
    return JsonResponse(body, status=409 if problem else 200)
