"""Runs in line: the next run of a thread begins when the one before it has ended."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from django.dispatch import receiver

from agentruntime.dispatch import ring_after_commit
from agentruntime.exceptions import AgentRuntimeError, InvalidInput
from agentruntime.graph import get_graph
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.lifecycle.finish import fail_run
from agentruntime.lifecycle.inputs import first_step, taken_id
from agentruntime.lifecycle.record import Pen
from agentruntime.models import DatabaseTime, Run, Thread
from agentruntime.models.transactions import durably
from agentruntime.signals import noticed, run_ended, swept

BATCH = 100


def let_next_in(thread_id: uuid.UUID) -> Run | None:
    """Begin the run that waits longest for this thread, if nothing is in its way; return it.

    Its input joins the history only now, after all that the runs before it added. One whose input
    does not fit the state any more fails. Safe to call any number of times, anywhere.
    """
    if not Run.objects.in_line().filter(thread_id=thread_id).exists():
        return None  # as nearly always: one look, no transaction
    try:
        return durably(lambda: _let_next_in(thread_id))
    except IntegrityError:  # another run got in first, or its messages cannot be added
        durably(lambda: _fail_if_taken(thread_id))
        return None


def _next_in(thread_id: uuid.UUID) -> tuple[Run, Thread] | None:
    """Lock and return the run whose turn it is, and its thread; None while something is at work."""
    waiting = Run.objects.in_line().filter(thread_id=thread_id)
    ident = waiting.values_list("pk", flat=True).first()
    run = Run.objects.select_for_update().filter(pk=ident).first() if ident else None
    thread = Thread.objects.select_for_update().filter(pk=thread_id).first()
    if run is None or thread is None or not run.is_in_line or run.has_ended:
        return None
    if Run.objects.active().filter(thread=thread, is_in_line=False).exists():
        return None
    return run, thread


def _let_next_in(thread_id: uuid.UUID) -> Run | None:
    found = _next_in(thread_id)
    if found is None:
        return None
    run, thread = found
    update = (run.kept_input or {}).get("update", {})
    try:
        first = first_step(get_graph(run.graph), _kept_messages(run), update, thread)
    except AgentRuntimeError as error:
        fail_run(run, error)
        return None
    run.save_fields(
        is_in_line=False,
        kept_input=None,
        base_version=thread.head_version + 1,
        queued_at=DatabaseTime(),
    )
    pen = Pen(thread, run.pk)
    pen.tell("run.queued", graph=run.graph, reason="its turn")
    pen.append(first, token=0)
    pen.save()
    ring_after_commit(run.pk)
    return run


def _kept_messages(run: Run) -> list[MessageValue]:
    kept = run.kept_input or {}
    return [MessageValue.model_validate(one) for one in kept.get("messages", [])]


def _fail_if_taken(thread_id: uuid.UUID) -> None:
    """End the next run as failed where its messages bear an id that is there already: no later try
    would go better, and all behind it would wait for ever.
    """
    found = _next_in(thread_id)
    if found is None:
        return
    run, thread = found
    if taken := taken_id(_kept_messages(run), thread.pk):
        fail_run(run, InvalidInput(reason=f"the message id {taken} is taken"))


@receiver(run_ended, dispatch_uid="agentruntime.line.ended")
def after_end(*, run: Run, **_: Any) -> None:
    """Let the next one in once the end is committed; the sweep does where this is lost."""
    if run.is_followed:
        transaction.on_commit(lambda: _try(run.thread_id))


@receiver(swept, dispatch_uid="agentruntime.line.swept")
def let_all_in(**_: Any) -> None:
    """Find the threads whose next run was forgotten."""
    working = Run.objects.active().filter(thread_id=OuterRef("thread_id"), is_in_line=False)
    stuck = Run.objects.in_line().filter(~Exists(working)).order_by()
    for thread_id in stuck.values_list("thread_id", flat=True).distinct()[:BATCH]:
        _try(thread_id)


def _try(thread_id: uuid.UUID) -> None:
    try:
        let_next_in(thread_id)
    except Exception as error:  # one bad row never stops the sweep; it is tried again
        facts = {"thread": str(thread_id), "error": repr(error)[:300]}
        noticed.send(None, level="error", event="the next run could not begin", facts=facts)
