"""Whether pages, claims and steps are as quick over a full database as over an empty one.

    python -m tests.services --durable -- python -m benchmarks.scale [--runs N] [--approvals N]

Fills a database (`scale_fill`; the default is 1,000,000 ended runs with 10,000,000 events, 100,000
waiting approvals, and one thread of 10,000 messages), takes every look and every act in it, and the
same before in a database of 200 runs, whose pages are as full; and asks the server how it finds the
rows: no plan may read a large table from end to end. The last line is `N of M goals met`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.server import Server
from benchmarks.stats import median, shown

LIMIT = 1.5
LARGE_ROWS = 20_000
REPEAT = 15
SMALL = (200, 60)
PAGE = 60  # messages, more than a page shows
OWNERS = 1_000
OF_A_THREAD = ("messages", "checkpoints", "tool-executions", "events")
LISTS = (
    "runs", "threads", "interrupts", "approvals", "runs/?status=interrupted",
    "runs/?graph=bench_chain", "approvals/?status=pending", "interrupts/?status=open",
)  # fmt: skip
WINDOWS = (
    *(f"agentruntime/{name}" for name in (
        "thread", "run", "checkpoint", "message", "toolexecution", "interrupt", "event")),
    "agentruntime/run/?status__exact=interrupted",
    "approvals/approval", "approvals/approval/?queue=all", "approvals/approval/?queue=mine",
    "approvals/approval/pulse", "approvals/decision",
)  # fmt: skip


@dataclass
class Look:
    """One thing that was measured: milliseconds, and the large tables that were read whole."""

    name: str
    ms: float
    scanned: set[str] = field(default_factory=set)


class Plans:
    """Keeps the statements of this thread's connection, and asks how the server runs them."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    @contextmanager
    def kept(self) -> Any:
        """Keep what is sent in this block."""
        from django.db import connection

        self._kept = {}
        with connection.execute_wrapper(self._keep):
            yield

    def _keep(self, execute: Any, statement: str, values: Any, many: bool, context: Any) -> Any:
        self._kept[statement] = values
        return execute(statement, values, many, context)

    def scanned(self, large: set[str]) -> set[str]:
        """The large tables of which a kept statement reads every row."""
        from django.db import connection, transaction

        found: set[str] = set()
        words = ("SELECT", "UPDATE", "DELETE", "WITH")
        for statement, values in self._kept.items():
            if not statement.lstrip().upper().startswith(words):
                continue
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
                (answer,) = cursor.fetchone()
            plan = answer if isinstance(answer, list) else json.loads(answer)
            read = read_whole(plan[0]["Plan"]) & large
            if read and os.environ.get("SHOW_PLANS"):
                print(f"{read}: {statement[:1500]}\n", file=sys.stderr)
            found |= read
        return found


def read_whole(plan: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from end to end."""
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*(read_whole(part) for part in plan.get("Plans", ())))


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="with 10 events each")
    parser.add_argument("--approvals", type=int, default=100_000, help="that wait")
    parser.add_argument("--messages", type=int, default=10_000, help="of the longest thread")
    parser.add_argument("--keep", action="store_true", help="leave the full database there")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure in a small database, fill it, measure again, compare."""
    options = options_of(arguments)
    server = Server(os.environ["DATABASE_URL"])
    os.environ |= {
        "DATABASE_URL": server.create("bench_scale"),
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "ALLOWED_HOSTS": "testserver",
        "BENCH_NO_WORKER": "true",
        "HTTPS": "false",
    }
    import django

    django.setup()
    lab = Lab()
    lab.fill(*SMALL, owners=1)
    empty = lab.looks(PAGE)
    seconds = lab.fill(options.runs, options.approvals, OWNERS)
    full = lab.looks(options.messages)
    print(
        f"{options.runs:,} ended runs, {options.approvals:,} waiting approvals, filled in "
        f"{seconds:.0f} s; {server.size('bench_scale') / 1e9:.1f} GB"
    )
    met = report(empty, full)
    if not options.keep:
        server.drop("bench_scale")
    print(f"{met} of {2 * len(full)} goals met")
    return 0


def report(empty: list[Look], full: list[Look]) -> int:
    """Print the table; returns how many goals are met, two for each look: its time, its plans."""
    met = 0
    print("| | small, ms | full, ms | ratio | read from end to end |\n|---|---|---|---|---|")
    for one, other in zip(empty, full, strict=True):
        ratio = other.ms / one.ms
        met += (ratio <= LIMIT) + (not other.scanned)
        scanned = ", ".join(sorted(other.scanned)) or "-"
        print(f"| {one.name} | {shown(one.ms)} | {shown(other.ms)} | {ratio:.2f} | {scanned} |")
    return met


class Lab:
    """One database, the people in it, and what is measured there."""

    def __init__(self) -> None:
        from django.contrib.auth import get_user_model
        from django.core.management import call_command
        from django.test import Client

        from benchmarks.people import create_people

        call_command("migrate", verbosity=0)
        create_people("asks", "decides")
        users = get_user_model().objects
        self.asks, self.decides = users.get(username="asks"), users.get(username="decides")
        people = (users.create_user("owner-0"), users.create_superuser("root"), self.decides)
        self.clients = {user.username: Client() for user in people}
        for user in people:
            self.clients[user.username].force_login(user)
        self.plans = Plans()
        self.done = self.story("bench_chain", {"messages": ["go"], "left": 2, "pad": ""})
        self.waiting = self.story("bench_gated", {"messages": ["go"]})

    def story(self, graph: str, given: dict[str, Any]) -> uuid.UUID:
        """Have a run go as far as it does by itself; returns its thread."""
        from agentruntime.lifecycle.loop import execute

        run = self.start(graph, given)
        execute(run.pk)
        return run.thread_id

    def start(self, graph: str, given: dict[str, Any], thread: Any = None) -> Any:
        from agentruntime.lifecycle import start_run

        config = {"recursion_limit": 100_000}
        return start_run(graph=graph, input=given, thread_id=thread, user=self.asks, config=config)

    def fill(self, runs: int, approvals: int, owners: int) -> float:
        """Copy the two stories so often, in turn for so many people, `owner-0` the first."""
        from benchmarks.scale_fill import fill

        return fill(self.done, self.waiting, runs, approvals, owners)

    def looks(self, messages: int) -> list[Look]:
        """All that is measured, in one order."""
        given = {"messages": ["go"] * messages, "left": 1, "pad": ""}
        thread = self.story("bench_chain", given)
        large = large_tables()
        found = [self.page(f"/api/v1/{one}", "owner-0", large) for one in LISTS]
        found += [self.page(f"/api/v1/{one}", "root", large) for one in LISTS]
        found += [
            self.page(
                f"/api/v1/threads/{thread}/{one}/", "root", large, f"the longest thread, {one}"
            )
            for one in OF_A_THREAD
        ]
        found += [self.page(f"/admin/{one}", "root", large) for one in WINDOWS]
        found += [self.page(f"/admin/{one}", "decides", large) for one in WINDOWS[-5:-1]]
        found += [self.page("/", "owner-0", large, "the page of one's talks")]
        acts: dict[str, Callable[[], Callable[[], Any]]] = {
            "start": lambda: self.start_one,
            "claim": self.claim_one,
            "step, 50 in a row": lambda: self.steps(None),
            "step, 50 in a row on the longest thread": lambda: self.steps(thread),
            "sweep": lambda: self.sweep,
            "decide": self.decide_one,
        }
        return found + [self.look(name, prepare, large) for name, prepare in acts.items()]

    def page(self, path: str, who: str, large: set[str], name: str = "") -> Look:
        client = self.clients[who]
        address = path if path.endswith("/") or "?" in path else path + "/"

        def get() -> None:
            answer = client.get(address)
            assert answer.status_code == 200, f"{address} for {who}: {answer.status_code}"

        return self.look(f"{name or path} ({who})", lambda: get, large)

    def look(self, name: str, prepare: Callable[[], Callable[[], Any]], large: set[str]) -> Look:
        """Do it some times, each prepared outside of the time; then once more for its plans."""
        took = []
        for _ in range(REPEAT):
            work = prepare()
            begun = time.perf_counter()
            work()
            took.append(time.perf_counter() - begun)
        work = prepare()
        with self.plans.kept():
            work()
        return Look(name, median(took[2:]) * 1000, self.plans.scanned(large))

    # The acts.

    def start_one(self) -> None:
        self.start("bench_chain", {"messages": ["go"], "left": 1, "pad": ""})

    def claim_one(self) -> Callable[[], Any]:
        from agentruntime.lifecycle.claim import claim_run

        run = self.start("bench_chain", {"messages": ["go"], "left": 1, "pad": ""})
        return lambda: claim_run(run.pk)

    def steps(self, thread: Any) -> Callable[[], Any]:
        from agentruntime.lifecycle.loop import execute

        run = self.start("bench_chain", {"messages": ["go"], "left": 50, "pad": ""}, thread)
        return lambda: execute(run.pk)

    def sweep(self) -> None:
        from agentruntime.lifecycle.recover import sweep

        sweep()

    def decide_one(self) -> Callable[[], Any]:
        from approvals.decide import decide
        from approvals.models import Approval

        thread = self.story("bench_gated", {"messages": ["go"]})
        approval = Approval.objects.get(thread_id=thread)
        return lambda: decide(approval_id=approval.pk, verdict="approve", user=self.decides)


def large_tables() -> set[str]:
    """The tables that nothing may read from end to end."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE reltuples > %s", (LARGE_ROWS,))
        return {name for (name,) in cursor.fetchall()}


if __name__ == "__main__":
    sys.exit(main())
