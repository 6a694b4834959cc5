"""A message comes in: a run is queued on its thread, in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError

from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.dispatch import ring_after_commit
from agentruntime.exceptions import (
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    RunNotFound,
    ThreadBusy,
    ThreadNotFound,
)
from agentruntime.graph import StateGraph, get_graph
from agentruntime.graph.json_values import NotJson, canonical_json, check_json, digest
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.lifecycle.inputs import first_step, read_input, taken_id
from agentruntime.lifecycle.record import Pen
from agentruntime.lifecycle.settings import check_config
from agentruntime.lifecycle.stop import stop_run
from agentruntime.models import BusyPolicy, Run, Thread
from agentruntime.models.transactions import durably

RACES = 3
WITHDRAWN = "it was withdrawn: another message came in its place"


@dataclass(frozen=True)
class _Request:
    graph: StateGraph
    messages: list[MessageValue]
    update: dict[str, Any]
    config: dict[str, Any]
    thread_id: uuid.UUID | None
    user: Any
    tenant: str
    key: str
    scope: str
    digest: str
    new_run_id: uuid.UUID = field(default_factory=uuid.uuid4)
    new_thread_id: uuid.UUID = field(default_factory=uuid.uuid4)


def start_run(
    *,
    graph: str,
    input: Any,
    thread_id: uuid.UUID | str | None = None,
    user: Any = None,
    config: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    tenant: str = "",
) -> Run:
    """Queue a run and return it; a worker is told once the transaction is committed.

    `input` is text, or a dict with `messages` and state fields. Without `thread_id` the run gets a
    thread of its own. An `idempotency_key` is scoped to the user: the same key with an equal
    request returns the run that it started (its `was_started_before` is true). Raises
    `UnknownGraph`, `InvalidInput`, `InvalidConfig`, `ThreadNotFound` (also for another user's
    thread), `ThreadBusy`, `IdempotencyConflict`; then nothing was written.
    """
    definition = get_graph(graph)
    messages, update = read_input(input)
    scope = f"{tenant}/{getattr(user, 'pk', None) or ''}"
    asked = {
        "graph": graph,
        "input": _plain(input),
        "thread": str(thread_id or ""),
        "config": check_config(config),
    }
    request = _Request(
        graph=definition,
        messages=messages,
        update=update,
        config=check_config(config),
        thread_id=_as_id(thread_id),
        user=user,
        tenant=tenant,
        key=_check_key(idempotency_key),
        scope=scope,
        digest=digest(asked),
    )
    may_wait = False
    for _ in range(RACES):
        try:
            return durably(_starting(request, may_wait))
        except _InTheWay as error:
            _make_way(request, error.thread)
            may_wait = True  # for whoever comes in between
        except IntegrityError:  # somebody else was first with the key or on the thread: look again
            continue
    try:
        return durably(_starting(request, may_wait=True))
    except IntegrityError:
        taken = taken_id(request.messages, request.thread_id or request.new_thread_id)
        if taken is None:
            raise
        raise InvalidInput(reason=f"the message id {taken} is taken") from None


class _InTheWay(Exception):
    """What the thread is busy with has to end before this run can begin."""

    def __init__(self, thread: Thread) -> None:
        super().__init__()
        self.thread = thread


def _starting(request: _Request, may_wait: bool) -> Callable[[], Run]:
    tries = 0

    def work() -> Run:
        nonlocal tries
        tries += 1
        # A new try may find that the last one landed, and only the answer to its COMMIT was lost.
        landed = Run.objects.filter(pk=request.new_run_id).first() if tries > 1 else None
        if landed is None:
            return _start(request, may_wait)
        landed.was_started_before = False
        return landed

    return work


def _plain(given: Any) -> Any:
    if isinstance(given, str):
        return given
    try:
        return canonical_json(given)
    except (TypeError, ValueError):
        return repr(given)


def _as_id(given: uuid.UUID | str | None) -> uuid.UUID | None:
    if given is None or isinstance(given, uuid.UUID):
        return given
    try:
        return uuid.UUID(str(given))
    except ValueError:
        raise ThreadNotFound(thread=str(given)[:64]) from None


def _check_key(given: str | None) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or not 0 < len(given) <= 255 or not given.isprintable():
        raise InvalidInput(reason="the idempotency key is printable text of 1 to 255 characters")
    return given


def _start(request: _Request, may_wait: bool) -> Run:
    if earlier := _started_before(request):
        return earlier
    thread = _thread_for(request)
    # A repeat that waited here for its own first request must see what that one did.
    if earlier := _started_before(request):
        return earlier
    is_new = thread._state.adding
    busy = None if is_new else Run.objects.active().filter(thread=thread).first()
    if busy is not None:
        in_the_way = policy_of(thread) == BusyPolicy.CANCEL and not may_wait
        if not in_the_way and not may_stand_in_line(thread):
            raise ThreadBusy(thread=thread.pk, run=busy.pk, status=busy.status)
        # What does not fit is refused now, if at all.
        first_step(request.graph, request.messages, request.update, thread, begins=False)
        if in_the_way:
            raise _InTheWay(thread)
        return _stand_in_line(request, thread)
    first = first_step(request.graph, request.messages, request.update, thread)
    run = _create(request, thread, base_version=thread.head_version + 1)
    pen = Pen(thread, run.pk)
    pen.tell("run.queued", graph=run.graph)
    pen.append(first, token=0)
    pen.save()
    run.was_started_before = False
    ring_after_commit(run.pk)
    crash_point("P0")
    return run


def policy_of(thread: Thread) -> str:
    """Return what a message does that comes while this thread is busy."""
    return thread.on_busy or runtime_settings().BUSY_POLICY


def may_stand_in_line(thread: Thread) -> bool:
    """Say whether one more run may wait for the thread."""
    if policy_of(thread) == BusyPolicy.REJECT:
        return False
    waiting = Run.objects.in_line().filter(thread=thread).count()
    return waiting < runtime_settings().MAX_IN_LINE


def _started_before(request: _Request) -> Run | None:
    if not request.key:
        return None
    earlier = Run.objects.filter(
        idempotency_scope=request.scope, idempotency_key=request.key
    ).first()
    if earlier is None:
        return None
    if earlier.request_digest != request.digest:
        raise IdempotencyConflict(run=earlier.pk)
    earlier.was_started_before = True
    return earlier


def _create(request: _Request, thread: Thread, **more: Any) -> Run:
    return Run.objects.create(
        id=request.new_run_id,
        thread=thread,
        user=request.user,
        graph=request.graph.name,
        graph_fingerprint=request.graph.fingerprint(),
        config=request.config,
        idempotency_scope=request.scope if request.key else "",
        idempotency_key=request.key,
        request_digest=request.digest if request.key else "",
        **more,
    )


def _make_way(request: _Request, thread: Thread) -> None:
    """End what is in the way of this run: it was found to be its owner's, and to fit the thread."""
    in_the_way = Run.objects.active().filter(thread=thread)
    if request.key:  # an equal request that was a moment faster is not in the way
        in_the_way = in_the_way.exclude(
            idempotency_scope=request.scope, idempotency_key=request.key
        )
    for busy in in_the_way:
        with suppress(IllegalTransition, RunNotFound):  # it has ended meanwhile
            stop_run(run_id=busy.pk, why=WITHDRAWN)


def _stand_in_line(request: _Request, thread: Thread) -> Run:
    kept = {
        "messages": [one.model_dump(mode="json") for one in request.messages],
        "update": request.update,
    }
    try:
        check_json(kept, path="input")
    except NotJson as error:
        raise InvalidInput(reason=str(error)) from None
    run = _create(request, thread, is_in_line=True, kept_input=kept)
    pen = Pen(thread, run.pk)
    pen.tell("run.queued", graph=run.graph, in_line=True)
    pen.save()
    run.was_started_before = False
    return run


def _thread_for(request: _Request) -> Thread:
    if request.thread_id is None:
        title = next((one.content for one in request.messages if one.content), "")
        return Thread(  # written with all that comes with it
            id=request.new_thread_id,
            user=request.user,
            tenant=request.tenant,
            title=" ".join(title.split())[:80],
        )
    thread = Thread.locked(request.thread_id)
    if request.user is not None and thread.user_id != request.user.pk:
        raise ThreadNotFound(thread=request.thread_id)
    return thread
