"""How fast a run goes on when its worker is gone, a person decides, or somebody stops it.

    python -m benchmarks.faults [--rounds 30] [--database URL] [--json]

Worker processes of the site on PostgreSQL and Redis. After SIGKILL and SIGTERM: from the signal to
the next worker's beginning of the same tool or model call. Of a decision: from `decide()` to the
gated tool's first line. Of a stop: from `stop_run()` to the end of a run whose tool hangs. The
kills happen side by side, each lane on a database of its own: there the lease decides, not the
machine. Everything else happens while nothing else does. A lane whose stored history is not sound
gives no figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.marks import Receiver
from benchmarks.processes import ROOT, WORKER_READY, SiteProcess, start_workers
from benchmarks.server import Server
from benchmarks.stats import median, percentile

KILL_LANES = 4
CROWD = 5  # workers that are up before some of them are told to end, one after the other
Seconds = list[float]


class Lane:
    """The workers of one database, and what is asked of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._logs = folder, 0
        self._environment = {"BENCH_MARKS": str(folder / "marks")}
        self._marks = Receiver(self._environment["BENCH_MARKS"])
        self.workers: list[SiteProcess] = []

    def staff(self, number: int) -> None:
        """Start workers until there are so many; they are not up yet."""
        while len(self.workers) < number:
            self._logs += 1
            log = self._folder / f"worker-{self._logs}"
            self.workers.append(start_workers(1, 8, self._environment, log))

    def until_up(self) -> None:
        """Return when all workers take work."""
        for worker in self.workers:
            worker.wait_until(WORKER_READY)

    def begin(self, graph: str, user: Any = None) -> Any:
        """Start a run on a thread of its own; its message names it to its model."""
        from agentruntime.lifecycle import start_run

        run = start_run(graph=graph, input=uuid.uuid4().hex, user=user)
        run.mark = str(run.thread_id)
        if graph == "bench_think":
            run.mark = run.thread.messages.get().content
        return run

    def began(self, run: Any) -> float:
        """The moment at which the run's tool or model began, as soon as it has."""
        return self._marks.wait_for(run.mark)

    def owner(self, run: Any) -> SiteProcess:
        """The worker that has the run."""
        run.refresh_from_db()
        pid = int(run.lease_owner.partition("/")[0].rpartition(":")[2])
        return next(worker for worker in self.workers if pid in worker.pids())

    def killed(self, count: int) -> Seconds:
        """From SIGKILL of a worker in a tool to the tool's next beginning elsewhere."""
        found = []
        for _ in range(count):
            self.staff(2)
            self.until_up()
            found.append(self._taken_up("bench_hang", SiteProcess.kill))
        return found

    def ended(self, count: int) -> Seconds:
        """From SIGTERM of a worker in a model call to the call's next beginning elsewhere."""
        found: Seconds = []
        while len(found) < count:
            self.staff(min(CROWD, count - len(found) + 1))
            self.until_up()
            while len(self.workers) > 1:
                found.append(self._taken_up("bench_think", SiteProcess.terminate))
        return found

    def _taken_up(self, graph: str, end: Callable[[SiteProcess], None]) -> float:
        run = self.begin(graph)
        self.began(run)
        victim = self.owner(run)
        self.workers.remove(victim)
        moment = time.perf_counter()
        end(victim)
        if graph == "bench_hang":
            self.staff(2)  # it comes up while the lease runs out
        seconds = self.began(run) - moment
        self._stop(run)
        victim.kill()
        return seconds

    def decided(self, count: int) -> Seconds:
        """From a decision to the start of the gated tool."""
        from django.contrib.auth import get_user_model

        from agentruntime.lifecycle import wait_for_run
        from agentruntime.models import Interrupt
        from approvals.decide import decide

        self.staff(2)
        self.until_up()
        users, found = get_user_model().objects, []
        asks, decides = users.get(username="asks"), users.get(username="decides")
        for _ in range(count):
            run = self.begin("bench_gated", asks)
            wait_for_run(run.pk, 30)
            approval = Interrupt.objects.get(run=run).approval
            moment = time.perf_counter()
            decide(approval_id=approval.pk, verdict="approve", user=decides)
            found.append(self.began(run) - moment)
            wait_for_run(run.pk, 30)
        return found

    def stopped(self, count: int) -> Seconds:
        """From a stop to the end of a run whose tool hangs."""
        self.staff(2)
        self.until_up()
        found = []
        for _ in range(count):
            run = self.begin("bench_hang")
            self.began(run)
            found.append(self._stop(run))
        return found

    def _stop(self, run: Any) -> float:
        from agentruntime.lifecycle import stop_run, wait_for_run

        moment = time.perf_counter()
        stop_run(run_id=run.pk)
        status = wait_for_run(run.pk, 30).status
        assert status == "stopped", status
        return time.perf_counter() - moment

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.kill()


def work(what: str, count: int) -> int:
    """Measure in this process, on the database and the queue of its environment."""
    import django

    django.setup()
    from agentruntime.invariants import find_violations

    with tempfile.TemporaryDirectory(prefix="lane-") as place:
        lane = Lane(Path(place))
        try:
            seconds = getattr(lane, what)(count)
        finally:
            lane.close()
    found = [str(one) for one in find_violations()]
    if found:
        print("\n".join(found[:5]), file=sys.stderr)
        return 1
    print(json.dumps(seconds))
    return 0


class Lanes:
    """Starts lanes, each on a copy of one migrated database."""

    def __init__(self, server: Server) -> None:
        self._server, self._count = server, 0
        self._template = self._name("template")
        self._run(self._template, server.create(self._template), "migrate")[0].communicate()

    def _name(self, what: object) -> str:
        return f"faults_{os.getpid()}_{what}"

    def _run(self, name: str, url: str, *words: str) -> tuple[Any, str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "DATABASE_URL": url,
            "BENCH_QUEUE": name,
        }
        command = [sys.executable, "-m", "benchmarks.faults", "--lane", *words]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        return process, name

    def measure(self, what: str, *counts: int) -> Seconds:
        """Run one lane for each count, side by side; returns what all of them found."""
        running = []
        for count in counts:
            self._count += 1
            name = self._name(self._count)
            url = self._server.create(name, self._template)
            running.append(self._run(name, url, what, str(count)))
        found: Seconds = []
        for process, name in running:
            output, _ = process.communicate()
            self._server.drop(name)
            if process.returncode:
                raise SystemExit(f"a lane of {what} failed")
            found += json.loads(output.splitlines()[-1])
        return found

    def close(self) -> None:
        """Drop the template."""
        self._server.drop(self._template)


def migrate() -> int:
    """Make the tables and the two people."""
    import django

    django.setup()
    from django.core.management import call_command

    from benchmarks.people import create_people

    call_command("migrate", verbosity=0)
    create_people("asks", "decides")
    return 0


def figures_of(found: dict[str, Seconds]) -> dict[str, float]:
    """The numbers of the report; `_s` are seconds, `_ms` milliseconds."""
    decided = [1000 * one for one in found["decided"]]
    return {
        "kill_s": median(found["killed"]),
        "kill_worst_s": max(found["killed"]),
        "term_s": median(found["ended"]),
        "term_p95_s": percentile(found["ended"], 95),
        "term_worst_s": max(found["ended"]),
        "decide_ms": median(decided),
        "decide_p95_ms": percentile(decided, 95),
        "stop_s": median(found["stopped"]),
        "stop_worst_s": max(found["stopped"]),
        "trials": len(found["killed"]),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure all, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--database", default=os.environ.get("DATABASE_URL", ""))
    parser.add_argument("--json", action="store_true", help="the figures again, as JSON")
    parser.add_argument("--lane", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.lane:
        what, *count = options.lane
        return migrate() if what == "migrate" else work(what, int(count[0]))
    if not options.database.startswith("postgres") or not os.environ.get("REDIS_URL"):
        parser.error("it needs a PostgreSQL server and REDIS_URL")
    lanes, rounds = Lanes(Server(options.database)), options.rounds
    try:
        each = [rounds // KILL_LANES + (n < rounds % KILL_LANES) for n in range(KILL_LANES)]
        found = {
            "killed": lanes.measure("killed", *filter(None, each)),
            "ended": lanes.measure("ended", rounds),
            "decided": lanes.measure("decided", 2 * rounds),
            "stopped": lanes.measure("stopped", rounds),
        }
    finally:
        lanes.close()
    for name, seconds in found.items():
        print(f"{name}: " + " ".join(f"{one:.3f}" for one in sorted(seconds)))
    figures = figures_of(found)
    print("; ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
