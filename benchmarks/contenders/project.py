"""The runtime itself: through `start_run` and `decide`, as an application uses it.

The rows of one process have the worker in the same process (no broker, the cache in Redis if there
is one). The rows of many threads go through the real queue: this process only starts runs, worker
processes of the site take them from Redis. The row of REST adds a web server.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import benchmarks.contenders as base
from benchmarks.marks import Receiver, taken
from benchmarks.processes import WEB_READY, WORKER_READY, SiteProcess, start_web, start_workers
from benchmarks.text import text

ENDS = {"run.completed", "run.interrupted", "run.failed", "run.stopped", "run.timed_out"}
CONFIG = {"recursion_limit": 100_000}
SITE = "benchmarks.settings"


class Ends:
    """Knows when a run of this process has come to an end or a pause: told after the commit."""

    def __init__(self) -> None:
        self._ended: set[Any] = set()
        self._changed = threading.Condition()

    def on_committed(self, *, run_id: Any, types: Any, **_: Any) -> None:
        """The receiver of the runtime's signal."""
        if ENDS.intersection(types):
            with self._changed:
                self._ended.add(run_id)
                self._changed.notify_all()

    def wait_for(self, run_id: Any, seconds: float = 60.0) -> None:
        """Return as soon as the run has ended or paused."""
        with self._changed:
            if not self._changed.wait_for(lambda: run_id in self._ended, seconds):
                raise TimeoutError(f"run {run_id} has not ended within {seconds} s")
            self._ended.discard(run_id)


class Contender(base.Contender):
    """Django is set up in `load`; a bench of worker processes starts them in `open`."""

    def load(self) -> None:
        apart = self.place.method in ("many", "rest", "waiting")
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self.environment = {
            "DJANGO_SETTINGS_MODULE": SITE,
            "DATABASE_URL": self.place.dsn,
            "REDIS_URL": self.place.redis_url,
            "BENCH_INLINE": "" if apart else "true",
        }
        os.environ.update(self.environment)
        import django  # the environment has to be there first

        django.setup()

    def migrate(self) -> None:
        from django.core.management import call_command

        from benchmarks.people import create_people

        call_command("migrate", verbosity=0)
        create_people("asks", "decides")

    def open(self) -> None:
        from django.contrib.auth import get_user_model

        from agentruntime.signals import committed

        users = get_user_model().objects
        self.asks, self.decides = users.get(username="asks"), users.get(username="decides")
        self.ends = Ends()
        committed.connect(self.ends.on_committed)
        self.paused: dict[str, Any] = {}
        self.threads: dict[str, uuid.UUID] = {}
        self.helpers: list[SiteProcess] = []
        if self.place.method == "many":
            self._start_workers(self.place.threads)
        if self.place.method == "rest":
            marks = self.folder / "marks"
            self.marks = Receiver(str(marks))
            self.environment["BENCH_MARKS"] = str(marks)
            self._start_workers(8)
            self._start_web()

    def close(self) -> None:
        for helper in self.helpers:
            helper.kill()

    def verify(self) -> list[str]:
        from agentruntime.invariants import Scope, find_violations

        return [f"{one.invariant}: {one.detail}" for one in find_violations(Scope())]

    def _start_workers(self, threads: int) -> None:
        log = self.folder / "workers"
        self.helpers.append(start_workers(1, threads, self.environment, log))
        self.helpers[-1].wait_until(WORKER_READY)

    def _start_web(self) -> None:
        from agentruntime.tokens import create_token

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.helpers.append(start_web(port, self.environment, self.folder / "web"))
        self.helpers[-1].wait_until(WEB_READY)
        self.http = http.client.HTTPConnection("127.0.0.1", port)
        _, self.token = create_token(self.decides, ["read", "decide"])

    def _run(self, graph: str, given: dict[str, Any], thread: uuid.UUID | None = None) -> Any:
        from agentruntime.lifecycle import start_run

        return start_run(graph=graph, input=given, thread_id=thread, user=self.asks, config=CONFIG)

    # One process.

    def step(self, thread: str, steps: int) -> list[float]:
        run = self._run("bench_chain", {"messages": ["go"], "left": steps})
        self.ends.wait_for(run.pk)
        marks = [*taken(str(run.thread_id)), time.perf_counter()]
        assert len(marks) == steps + 1, f"{len(marks) - 1} steps, not {steps}"
        return [after - before for before, after in itertools.pairwise(marks)]

    def statements(self, steps: int) -> float:
        from benchmarks.statements import Counter

        with Counter() as counter:
            self.step("counted", steps)
        return counter.count / steps

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        took = []
        for _ in range((upto - have) // 10):
            begun = time.perf_counter()
            given = {"messages": [text(size)], "left": 9, "size": size}
            run = self._run("bench_chain", given, self.threads.get(thread))
            self.threads[thread] = run.thread_id
            self.ends.wait_for(run.pk)
            took.append((time.perf_counter() - begun) / 10)
            taken(str(run.thread_id))
        return took

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        run = self._run("bench_tools", {"messages": [f"{thread}/{count}/{seconds}/{mode}"]})
        self.ends.wait_for(run.pk)
        first, second = taken(thread)
        return second - first

    def pause(self, thread: str, messages: int, size: int) -> None:
        run = self._run("bench_gated", {"messages": [text(size) for _ in range(messages)]})
        if self.place.method == "rest":
            from agentruntime.lifecycle import wait_for_run

            wait_for_run(run.pk, 60)
        else:
            self.ends.wait_for(run.pk)
        self.paused[thread] = run

    def _approval(self, thread: str) -> Any:
        from approvals.models import Approval

        if thread in self.paused:
            return Approval.objects.get(run_id=self.paused[thread].pk)
        return Approval.objects.get(status="pending")

    def answer(self, thread: str) -> dict[str, float]:
        from approvals.decide import decide

        approval = self._approval(thread)
        begun = time.perf_counter()
        decide(approval_id=approval.pk, verdict="approve", user=self.decides)
        self.ends.wait_for(approval.run_id)
        done, (ran,) = time.perf_counter(), taken(str(approval.thread_id))
        return {"tool_at": ran, "to_tool": ran - begun, "to_done": done - begun}

    # Several processes.

    def many(self, threads: list[str], steps: int) -> dict[str, Any]:
        """The CPU is that of the workers and of starting the runs, not of waiting for them."""
        workers, given = self.helpers[0], {"messages": ["go"], "left": steps}
        before = workers.cpu_s() + time.process_time()
        runs = [self._run("bench_chain", given).pk for _ in threads]
        started = time.process_time()
        self._wait_for_all(runs)
        return {"cpu_s": workers.cpu_s() + started - before, "rss_kib": workers.peak_kib()}

    def _wait_for_all(self, runs: list[uuid.UUID]) -> None:
        until = time.monotonic() + 120
        while self._completed(runs) < len(runs):
            if time.monotonic() > until:
                raise TimeoutError(f"{self._completed(runs)} of {len(runs)} runs have ended")
            time.sleep(0.01)

    def _completed(self, runs: list[uuid.UUID]) -> int:
        from django.db import connection

        statement = "SELECT count(*) FROM agentruntime_run WHERE id = ANY(%s) AND status = %s"
        with connection.cursor() as cursor:
            cursor.execute(statement, (runs, "completed"))
            return cursor.fetchone()[0]

    def rest(self, thread: str) -> dict[str, float]:
        approval = self._approval(thread)
        path = f"/api/v1/approvals/{approval.pk}/"
        digest = self._call("GET", path)["digest"]
        begun = time.perf_counter()
        self._call("POST", path + "approve/", {"digest": digest})
        done = time.perf_counter()
        ran = self.marks.wait_for(str(approval.thread_id))
        return {"tool_at": ran, "to_tool": ran - begun, "to_done": done - begun}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        self.http.request(method, path, json.dumps(body) if body else None, headers)
        response = self.http.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:500]!r}")
        return json.loads(content)

    def waiting(self, runs: int, seconds: float, workers: int, threads: int) -> dict[str, float]:
        log = self.folder / "workers"
        helper = start_workers(workers, threads, self.environment, log)
        self.helpers.append(helper.wait_until(WORKER_READY, workers))
        begun, seen = time.perf_counter(), 0
        started = [self._run("bench_wait", {"seconds": seconds}).pk for _ in range(runs)]
        until = begun + 120
        while self._completed(started) < runs:
            seen = max(seen, self._connections())
            if time.perf_counter() > until:
                raise TimeoutError(f"{self._completed(started)} of {runs} runs have ended")
            time.sleep(0.1)
        took = time.perf_counter() - begun
        return {"done_s": took, "connections": seen, "peak_kib": helper.peak_kib()}

    def _connections(self) -> int:
        """Connections to the database now, this one not counted."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
            )
            return cursor.fetchone()[0]
