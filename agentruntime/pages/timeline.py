"""A thread as a person reads it: messages, calls, questions and ends, in one line of entries.

An entry has a key that stays and a revision that changes with its content, so that a page which
is open replaces only what has changed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from agentruntime.graph.json_values import digest
from agentruntime.models import (
    CallKind,
    Interrupt,
    InterruptStatus,
    Message,
    Run,
    RunStatus,
    Thread,
    ToolExecution,
)
from agentruntime.pages.calls import call_facts, question_facts

NEWEST = 80
UNHAPPY = (RunStatus.FAILED, RunStatus.STOPPED, RunStatus.TIMED_OUT)


@dataclass(frozen=True)
class Entry:
    """One thing on the page: `kind` names its template, `facts` fill it, `at` is its place."""

    kind: str
    key: str
    at: datetime
    facts: dict[str, Any]

    @property
    def template(self) -> str:
        return f"agentruntime/entries/{self.kind}.html"

    @property
    def revision(self) -> str:
        """Changes if and only if what the entry shows changes."""
        return digest(json.loads(json.dumps([self.kind, self.facts], default=str)))[:12]


def read_timeline(thread: Thread, run: Run | None, newest: int = NEWEST) -> list[Entry]:
    """Return the entries of the `newest` messages of a thread, oldest first.

    `run` is its latest run, which an entry at the end tells of while it is active.
    """
    messages = list(thread.messages.order_by("-ordinal")[:newest])[::-1]
    since = messages[0].created_at if thread.message_count > len(messages) and messages else None
    executions = _executions(thread, messages, since)
    entries = list(_entries_of(messages, executions))
    _insert(entries, _calls_within(messages, executions))
    _insert(entries, _questions(thread, since))
    _insert(entries, _ends(thread, since))
    if run is not None and not run.has_ended:
        entries.append(_activity(run, entries))
    return entries


def _entries_of(messages: list[Message], executions: dict[str, ToolExecution]) -> Iterable[Entry]:
    results = _results(messages)
    for message in messages:
        if message.role not in ("user", "assistant"):
            continue
        if message.content.strip():
            facts = {"text": message.content, "at": message.created_at}
            yield Entry(message.role, str(message.id), message.created_at, facts)
        for call in message.tool_calls:
            key = _call_key(message, call)
            facts = call_facts(call, executions.get(key), results.get(key))
            yield Entry("call", key, message.created_at, facts)


def _call_key(message: Message, call: dict[str, Any]) -> str:
    return f"{message.id}:{call.get('id', '')}"


def _keys(messages: list[Message]) -> list[str]:
    return [_call_key(message, call) for message in messages for call in message.tool_calls]


def _executions(
    thread: Thread, messages: list[Message], since: datetime | None
) -> dict[str, ToolExecution]:
    recent = Q() if since is None else Q(call_key__in=_keys(messages)) | Q(created_at__gte=since)
    rows = (
        ToolExecution.objects.filter(recent, thread=thread, kind=CallKind.CALL)
        .select_related("run")
        .prefetch_related("interrupts__answered_by")
    )
    return {row.call_key: row for row in rows}


def _calls_within(messages: list[Message], executions: dict[str, ToolExecution]) -> Iterable[Entry]:
    """Calls that no message of the thread asks for: those of agents that are asked, and those of
    branches that are still at work.
    """
    for key in executions.keys() - set(_keys(messages)):
        row = executions[key]
        call = {"name": row.tool, "arguments": row.arguments}
        yield Entry("call", key, row.created_at, call_facts(call, row, None))


def _results(messages: list[Message]) -> dict[str, str]:
    """Return what each call's tool message says, by call key: it follows its assistant message."""
    found: dict[str, str] = {}
    asking: Message | None = None
    for message in messages:
        if message.role == "assistant":
            asking = message
        elif message.role == "tool" and asking is not None:
            found[f"{asking.id}:{message.tool_call_id}"] = message.content
    return found


def _questions(thread: Thread, since: datetime | None) -> Iterable[Entry]:
    """Questions of nodes; those of tools stand with their calls."""
    rows = Interrupt.objects.filter(thread=thread, tool_execution=None).order_by("created_at")
    if since is not None:
        rows = rows.filter(created_at__gte=since) | rows.filter(status=InterruptStatus.OPEN)
    for row in rows.select_related("answered_by"):
        yield Entry("question", str(row.id), row.created_at, question_facts(row))


def _ends(thread: Thread, since: datetime | None) -> Iterable[Entry]:
    """The ends that no message tells of: failed, stopped, timed out."""
    runs = Run.objects.filter(thread=thread, status__in=UNHAPPY).order_by("finished_at")
    if since is not None:
        runs = runs.filter(finished_at__gte=since)
    for run in runs:
        facts = {"status": run.status, "code": run.error_code, "detail": run.error_detail}
        yield Entry("end", f"end-{run.id}", run.finished_at, facts)


def _insert(entries: list[Entry], more: Iterable[Entry]) -> None:
    for entry in more:
        entries.insert(bisect_right(entries, entry.at, key=lambda one: one.at), entry)


def _activity(run: Run, entries: list[Entry]) -> Entry:
    newest = run.events.filter(thread=run.thread_id).order_by("-seq").first()
    node = newest.data.get("node", "") if newest is not None else ""
    working = [e.facts["tool"] for e in entries if e.kind == "call" and e.facts["is_working"]]
    facts = {
        "status": run.status,
        "node": node,
        "tools": working,
        "stopping": run.stop_requested_at is not None,
    }
    return Entry("activity", f"activity-{run.id}", run.created_at, facts)
