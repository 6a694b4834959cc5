"""The chaos hour: `make chaos MINUTES=10`, or `python -m tests.chaos --minutes N --data DIR`.

Retail tasks run under load on worker processes of their own, one thread each, every write approved
by a person, while every 5 to 40 seconds something breaks: a worker is killed, stopped past its
lease or told to end, PostgreSQL is restarted (fast or immediate), sessions are cut, Redis is
flushed or its clients are cut off. No kind of fault comes a second time before all have come. In
the end every task must be exact (the shop's state and its journal) and the history sound. Faults,
recoveries and their times are printed; a run in which no fault fired is not called good, and one
that was too short for all kinds says which are missing. DATABASE_URL and REDIS_URL are those of
servers of this machine that may be restarted; `make chaos` starts private ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.breaking import Faults, Workers

SETTINGS = "benchmarks.settings"
ACTIVE = 16
SETTLE_SECONDS = 180.0


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
    server, name = Server(url), f"chaos_{os.getpid()}"
    made: str = server.create(name)
    # A worker may be stopped in the middle of a transaction, and the people of this load would wait
    # for its rows in the very process that wakes it.
    server.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '5s'")
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
            f"{name}: {'runs' if name.startswith('SIG') else 'steps'} went on after "
            f"{statistics.median(times):.1f} s (median), {max(times):.1f} s (worst), n={len(times)}"
        )
    states = Counter(Run.objects.values_list("status", flat=True))
    print(f"runs: {dict(states)}; the last ones ended {seconds:.1f} s after the storm")
    unrecorded = workers.logs().count("could not be recorded")
    print(f"{len(load.runs) - len(wrong)} of {len(load.runs)} tasks exact, "
          f"{len(found)} violations, {unrecorded} outcomes unrecorded")  # fmt: skip
    if not faults.fired:
        print("No fault fired: this shows nothing.")
    elif faults.missing:
        print(f"Too short for: {', '.join(faults.missing)}.")
    if faults.hit or faults.waited_for:
        names = {one[0] for one in (*faults.hit, *faults.waited_for)}
        print(f"Nothing was seen to go on after: {', '.join(sorted(names))}.")
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
