"""What the processes of `crash_demo` do. Each knows nothing of the others but the database."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable

from django.core.management import call_command

from agentruntime.broker import start_embedded_worker
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Event, Interrupt, InterruptStatus, Run

SHOWN = ("run.", "tool.")


def start(graph: str) -> None:
    """Start a run of `graph`, work on it, and stay until killed."""
    call_command("migrate", interactive=False, verbosity=0)
    run = start_run(graph=graph, input="Please.")
    say(f"run {run.pk}")
    stay(run.pk)


def answer(run_id: str) -> None:
    """Say yes to what a run asks, work on it, and stay until killed."""
    asked = Interrupt.objects.get(run_id=run_id, status=InterruptStatus.OPEN)
    seen = Event.objects.filter(run_id=run_id).count()
    resume_run(interrupt_id=asked.pk, value=True)
    stay(uuid.UUID(run_id), seen)


def work(run_id: str) -> None:
    """Only be a worker, as after a restart: nobody names the run or calls anything."""
    seen = Event.objects.filter(run_id=run_id).count()
    start_embedded_worker()
    stay(uuid.UUID(run_id), seen)


ACTS: dict[str, Callable[[str], None]] = {"start": start, "answer": answer, "work": work}


def stay(run_id: uuid.UUID, seen: int = 0) -> None:
    """Tell the run's events as they come, and its answer when it has ended."""
    while True:
        has_ended = Run.objects.get(pk=run_id).has_ended  # read first: its end is an event too
        for event in Event.objects.filter(run_id=run_id).order_by("seq")[seen:]:
            seen += 1
            if event.type.startswith(SHOWN):
                say(f"event {event.type} {event.data.get('tool', '')}".rstrip())
        if has_ended:
            tell_answer(run_id)
            return
        time.sleep(0.02)


def tell_answer(run_id: uuid.UUID) -> None:
    """Tell what the agent said last, line by line."""
    messages = Run.objects.get(pk=run_id).thread.messages.order_by("-ordinal")
    for line in messages[0].content.splitlines():
        say(f"answer {line}")
    say("end")


def say(line: str) -> None:
    """Tell the narrator one line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
