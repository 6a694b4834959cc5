"""The chaos hour: `make chaos MINUTES=10`, or `python -m tests.chaos --minutes N --data DIR`.

Retail tasks run under load on worker processes of their own, one thread each, every write approved
by a person, while every 5 to 40 seconds something breaks: a worker is killed, stopped past its
lease or told to end, PostgreSQL is restarted (fast or immediate), sessions are cut, Redis is
flushed or its clients are cut off. In the end every task must be exact (the shop's state and its
journal) and the history sound. Faults, recoveries and their times are printed; a run in which no
fault fired is not called good. DATABASE_URL and REDIS_URL are those of servers of this machine that
may be restarted; `make chaos` starts private ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = "benchmarks.settings"
ACTIVE = 16
LEASE_AND_MORE = 8.0
SETTLE_SECONDS = 180.0


class Workers:
    """The worker processes; one of them at a time is a victim."""

    def __init__(self, number: int, environment: dict[str, str], folder: Path) -> None:
        self._environment, self._folder, self._logs = environment, folder, 0
        self._stopped: list[tuple[float, Any]] = []
        self.all = [self._start() for _ in range(number)]

    def _start(self) -> Any:
        from benchmarks.processes import start_workers

        self._logs += 1
        log = self._folder / f"worker-{self._logs}.log"
        return start_workers(1, 8, self._environment, log)

    def victim(self, rng: random.Random) -> Any:
        """One of those that are up, or None; another is always left."""
        from benchmarks.processes import WORKER_READY

        stopped = [process for _, process in self._stopped]
        up = [one for one in self.all if WORKER_READY in one.output() and one not in stopped]
        return rng.choice(up) if len(up) > 1 else None

    def replace(self, process: Any) -> None:
        """Start another in its place."""
        self.all.remove(process)
        self.all.append(self._start())

    def stop_for_a_while(self, process: Any) -> None:
        """SIGSTOP, and SIGCONT when its lease is over."""
        _signal(process, signal.SIGSTOP)
        self._stopped.append((time.monotonic() + LEASE_AND_MORE, process))

    def wake(self, everybody: bool = False) -> None:
        """Let those go on whose time is over."""
        for until, process in list(self._stopped):
            if everybody or time.monotonic() >= until:
                _signal(process, signal.SIGCONT)
                self._stopped.remove((until, process))

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self._folder.glob("worker-*"))


def _signal(process: Any, number: signal.Signals) -> None:
    for pid in process.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Faults:
    """What breaks, when, and how long the runs that it hit took to go on."""

    def __init__(self, workers: Workers, rng: random.Random, postgres: Any, redis: str) -> None:
        self._workers, self._rng, self._postgres, self._redis = workers, rng, postgres, redis
        self.fired: Counter[str] = Counter()
        self.hit: list[tuple[str, float, dict[Any, int]]] = []
        self.recovered: dict[str, list[float]] = {}
        self.next = time.monotonic() + rng.uniform(3, 8)
        self._menu: list[tuple[str, Callable[[], dict[Any, int] | None]]] = [
            ("SIGKILL", self._kill),
            ("SIGKILL", self._kill),
            ("SIGSTOP", self._stop),
            ("SIGTERM", self._term),
        ]
        if postgres is not None:
            self._menu += [
                ("PostgreSQL fast", lambda: self._restart("fast")),
                ("PostgreSQL immediate", lambda: self._restart("immediate")),
                ("sessions cut", self._cut),
            ]
        if redis:
            self._menu += [("Redis flushed", self._flush), ("Redis clients cut", self._kick)]

    def maybe(self) -> None:
        """Break something, if it is time."""
        if time.monotonic() < self.next:
            return
        name, break_it = self._rng.choice(self._menu)
        affected = break_it()
        if affected is None:
            self.next = time.monotonic() + 1
            return
        self.fired[name] += 1
        print(f"{time.strftime('%H:%M:%S')} {name}, {len(affected)} runs hit", flush=True)
        if affected:
            self.hit.append((name, time.monotonic(), affected))
        self.next = time.monotonic() + self._rng.uniform(5, 40)

    def look(self) -> None:
        """See which of the runs that were hit go on, and note how long that took."""
        from agentruntime.models import Run

        for name, since, tokens in self.hit:
            rows = Run.objects.filter(pk__in=tokens).values_list("pk", "fencing_token", "status")
            for pk, token, status in rows:
                if token > tokens[pk] or status != "running":
                    del tokens[pk]
                    self.recovered.setdefault(name, []).append(time.monotonic() - since)
        self.hit = [one for one in self.hit if one[2]]

    def _held_by(self, process: Any) -> dict[Any, int]:
        from agentruntime.models import Run

        pids = set(process.pids())
        rows = Run.objects.filter(status="running").values_list(
            "pk", "fencing_token", "lease_owner"
        )
        owner = {pk: int(owned.partition("/")[0].rpartition(":")[2]) for pk, _, owned in rows}
        return {pk: token for pk, token, _ in rows if owner[pk] in pids}

    def _kill(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        process.kill()
        self._workers.replace(process)
        return held

    def _stop(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        self._workers.stop_for_a_while(process)
        return held

    def _term(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        os.kill(process.pids()[0], signal.SIGTERM)
        self._workers.replace(process)
        return held

    def _restart(self, mode: str) -> dict[Any, int]:
        seconds = self._postgres.restart(mode, away=self._rng.choice((0, 0, 3)))
        print(f"         PostgreSQL was away for {seconds:.1f} s", flush=True)
        return {}

    def _cut(self) -> dict[Any, int]:
        self._postgres.cut_connections()
        return {}

    def _flush(self) -> dict[Any, int]:
        from tests.faults.servers import flush_redis

        flush_redis(self._redis)
        return {}

    def _kick(self) -> dict[Any, int]:
        from tests.faults.servers import kick_redis_clients

        kick_redis_clients(self._redis)
        return {}


class Load:
    """Retail tasks, a number of them at once, each a run on a thread of its own."""

    def __init__(self, tasks: list[dict[str, Any]], store: Any) -> None:
        self._tasks, self._store, self._begun = tasks, store, 0
        self.runs: list[tuple[dict[str, Any], Any]] = []

    def top_up(self) -> None:
        """Start tasks until enough are under way."""
        from django.contrib.auth import get_user_model

        from agentruntime.lifecycle import start_run
        from agentruntime.models import Run
        from benchmarks.retail_agents import opening

        customer = get_user_model().objects.get(username="customer")
        for _ in range(ACTIVE - Run.objects.active().count()):
            task = self._tasks[self._begun % len(self._tasks)]
            config = {"recursion_limit": 100}
            key = f"chaos-{self._begun}"
            run = start_run(
                graph="retail",
                input=opening(task),
                user=customer,
                config=config,
                idempotency_key=key,
            )
            self._begun += 1
            self.runs.append((task, run))

    def answer(self) -> None:
        """Answer what waits for a person."""
        from benchmarks.retail import people_answer

        people_answer(self._store)

    def wrong(self, data: Path) -> list[str]:
        """What is not exact, one line per task."""
        from agentruntime.models import Run
        from benchmarks.retail import judge

        fresh = Run.objects.in_bulk([run.pk for _, run in self.runs])
        tasks = [task for task, _ in self.runs]
        return judge(tasks, [fresh[run.pk] for _, run in self.runs], self._store, data)


@contextlib.contextmanager
def ridden_out() -> Any:
    """The people of this load try again when the database is away."""
    from django.db import DatabaseError, InterfaceError, connections

    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        print(f"         a person is told to try again: {type(error).__name__}", flush=True)
        connections.close_all()
        time.sleep(0.5)


def storm(options: argparse.Namespace, load: Load, faults: Faults, workers: Workers) -> float:
    """Keep the load up and break things; then let all come to its end. Gives how long that took."""
    from agentruntime.models import Run

    until = time.monotonic() + options.minutes * 60
    while time.monotonic() < until:
        with ridden_out():
            load.top_up()
            load.answer()
            faults.look()
            faults.maybe()
        workers.wake()
        time.sleep(0.1)
    workers.wake(everybody=True)
    begun = time.monotonic()
    while time.monotonic() < begun + SETTLE_SECONDS:
        with ridden_out():
            if not Run.objects.active().exists():
                break
            load.answer()
            faults.look()
        time.sleep(0.1)
    return time.monotonic() - begun


def new_database(url: str, folder: Path) -> str:
    """Make a database for the storm: on the server of the URL, or a SQLite file."""
    from benchmarks.server import Server

    if not url.startswith("postgres"):
        return f"sqlite:///{folder / 'db.sqlite3'}"
    made: str = Server(url).create(f"chaos_{os.getpid()}")
    return made


def report(load: Load, faults: Faults, workers: Workers, data: Path, seconds: float) -> int:
    """Print what happened; gives the exit code."""
    from agentruntime.invariants import find_violations
    from agentruntime.models import Run

    wrong, found = load.wrong(data), list(find_violations())
    for line in [*wrong, *map(str, found)][:30]:
        print(line[:400])
    fired = ", ".join(f"{name} {times}" for name, times in sorted(faults.fired.items()))
    print(f"faults: {fired or 'none'}")
    for name, times in sorted(faults.recovered.items()):
        print(
            f"runs hit by {name}: {len(times)}, went on after {statistics.median(times):.1f} s "
            f"(median), {max(times):.1f} s (worst)"
        )
    states = Counter(Run.objects.values_list("status", flat=True))
    print(f"runs: {dict(states)}; the last ones ended {seconds:.1f} s after the storm")
    unrecorded = workers.logs().count("could not be recorded")
    print(f"{len(load.runs) - len(wrong)} of {len(load.runs)} tasks exact, "
          f"{len(found)} violations, {unrecorded} outcomes unrecorded")  # fmt: skip
    if not faults.fired:
        print("No fault fired: this shows nothing.")
    return 1 if wrong or found or not faults.fired else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the storm; 0 if all is exact and sound, and something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("RETAIL_DATA", "benchmarks/data")
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    if not (options.data / "tasks.json").is_file():
        parser.error("--data (or RETAIL_DATA) must name a directory with tasks.json")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    url, redis = os.environ.get("DATABASE_URL", ""), os.environ.get("REDIS_URL", "")
    from benchmarks.retail import set_up
    from tests.faults.servers import Postgres

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        postgres = Postgres(url) if url.startswith("postgres") else None
        environment = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": new_database(url, folder),
            "RETAIL_DATA": str(options.data),
            "RETAIL_JOURNAL": str(folder / "journal.jsonl"),
            "BENCH_INLINE": "",
        }
        set_up(environment)
        from benchmarks.retail_store import Store

        tasks = json.loads((options.data / "tasks.json").read_text())
        rng = random.Random(seed)
        rng.shuffle(tasks)
        load = Load(tasks, Store(options.data, folder / "journal.jsonl"))
        workers = Workers(options.workers if redis else 2, environment, folder)
        stack.callback(lambda: [process.kill() for process in workers.all])
        if postgres is not None:
            stack.callback(postgres.stop)
        faults = Faults(workers, rng, postgres, redis)
        seconds = storm(options, load, faults, workers)
        return report(load, faults, workers, options.data, seconds)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
