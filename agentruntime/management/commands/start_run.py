"""`manage.py start_run`: a run from the shell."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand

from agentruntime.broker import is_embedded, stop_embedded_worker
from agentruntime.exceptions import AgentRuntimeError
from agentruntime.graph.json_values import NotJson, read_json
from agentruntime.lifecycle import start_run
from agentruntime.models import Event, InterruptKind, InterruptStatus, Run, RunStatus, tenant_of

EXIT = {
    RunStatus.COMPLETED: 0,
    RunStatus.FAILED: 1,
    RunStatus.INTERRUPTED: 3,
    RunStatus.STOPPED: 4,
    RunStatus.TIMED_OUT: 4,
}


class Usage(Exception):
    """The call's words are off; the command says why and exits with 2."""


class Command(BaseCommand):
    help = (
        "Starts a run; the first line is its id. Exit: 0 completed (or started), 1 failed, "
        "2 usage, 3 interrupted, 4 stopped or timed out."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("graph", help="the name it is registered under")
        parser.add_argument("--message", help="text of the user's message")
        parser.add_argument(
            "--input", help="JSON: text, or an object with messages and state fields"
        )
        parser.add_argument("--thread", help="id of the thread to go on with")
        parser.add_argument(
            "--config", help="JSON: tool_timeout, node_timeout, recursion_limit, ..."
        )
        parser.add_argument("--user", help="name of the user it runs for")
        parser.add_argument(
            "--follow", action="store_true", help="print events until it ends or pauses"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = self._start(options)
        except (Usage, AgentRuntimeError, NotJson) as error:
            self.stderr.write(str(error))
            raise SystemExit(2) from None
        self.stdout.write(
            json.dumps({"run": str(run.pk), "thread": str(run.thread_id)})
            if options["json"]
            else str(run.pk)
        )
        self.stdout.flush()
        if options["follow"]:
            status = self._follow(run, options["json"])
            if status == RunStatus.INTERRUPTED and not options["json"]:
                self.stdout.write(_what_waits(run))
            if is_embedded():
                stop_embedded_worker()
            raise SystemExit(EXIT[RunStatus(status)])
        if is_embedded():
            stop_embedded_worker()

    def _start(self, options: dict[str, Any]) -> Run:
        if (options["message"] is None) == (options["input"] is None):
            raise Usage("Give either --message or --input.")
        user = self._user(options["user"])
        return start_run(
            graph=options["graph"],
            input=options["message"] if options["input"] is None else read_json(options["input"]),
            thread_id=options["thread"],
            user=user,
            tenant=tenant_of(user),
            config=read_json(options["config"]) if options["config"] else None,
        )

    def _user(self, name: str | None) -> Any:
        if name is None:
            return None
        model = get_user_model()
        try:
            return model._default_manager.get_by_natural_key(name)
        except model.DoesNotExist:
            raise Usage(f"There is no user named {name!r}.") from None

    def _follow(self, run: Run, as_json: bool) -> str:
        told = Event.objects.filter(thread=run.thread_id, run=run).order_by("seq")
        after = 0
        while True:
            status = Run.objects.values_list("status", flat=True).get(pk=run.pk)
            for event in told.filter(seq__gt=after):
                after = event.seq
                self.stdout.write(_line(event, as_json))
                self.stdout.flush()
            if status not in (RunStatus.QUEUED, RunStatus.RUNNING):
                return str(status)
            time.sleep(0.05)


def _what_waits(run: Run) -> str:
    """Say of each open question what waits and what to do."""
    asked = Event.objects.filter(thread=run.thread_id, run=run, type="approval.requested")
    approvals = {one.data.get("interrupt"): one.data for one in asked}
    told = []
    for question in run.interrupts.filter(status=InterruptStatus.OPEN).order_by("created_at", "id"):
        approval = approvals.get(str(question.pk))
        title = (approval or {}).get("title") or question.message
        told.append(f"      waits: {title} ({question.kind} {question.pk})")
        if approval:
            told.append(
                f"      to go on: manage.py decide {approval['approval']} approve|decline "
                "--user NAME"
            )
        elif question.kind == InterruptKind.QUESTION:
            told.append(f"      to go on: POST /api/v1/interrupts/{question.pk}/resume/")
    return "\n".join(told)


def _line(event: Event, as_json: bool) -> str:
    if as_json:
        told = {
            "seq": event.seq,
            "type": event.type,
            "run": str(event.run_id),
            "thread": str(event.thread_id),
            "at": event.at.isoformat(),
            "data": event.data,
        }
        return json.dumps(told, ensure_ascii=False)
    shown = event.data.get("content") or event.data.get("tool") or event.data.get("node") or ""
    detail = (
        (event.data.get("error") or {}).get("detail", "")
        if isinstance(event.data.get("error"), dict)
        else ""
    )
    return f"{event.seq:>4}  {event.type:<18} {shown} {detail}".rstrip()
