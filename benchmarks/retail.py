"""The tasks of the retail data through the runtime: real work, judged call by call.

    python -m benchmarks.retail --data DIR [--database URL] [--workers N] [--kill SECONDS]
                                [--no-ledger] [--tasks N] [--json]

One thread for each task, all at once; every write is approved by a second user through
`approvals.decide`. A task is exact when the shop's end state is what its calls give when each
runs once, and the shop's journal, which no transaction of the run touches, holds each write once.
Prints `N of M exact`, the wall time, steps per second; ends with 0 only if all are exact.

DIR holds orders.json, users.json, products.json and tasks.json. The database is made for this run
and removed: a new one on the server of the URL (or of DATABASE_URL), or a SQLite file. With
REDIS_URL and `--workers N` the runs are worked off by N processes, otherwise in this one.
`--kill` kills one of them with -9 that often. `--no-ledger` calls the tools from a node that runs
from its first line again after each pause: it shows that this check can fail.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import WORKER_READY, SiteProcess, start_workers

SETTINGS = "benchmarks.settings"
LIMIT_S = 300.0
THREADS = 8  # of each worker process


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; nothing is touched yet."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.retail",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("RETAIL_DATA"),
        help="the directory of the data (default: RETAIL_DATA)",
    )
    parser.add_argument(
        "--database",
        default=os.environ.get("DATABASE_URL", ""),
        help="a PostgreSQL server, or `sqlite` (the default)",
    )
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: this one")
    parser.add_argument(
        "--kill",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="kill -9 one worker process after another, this often",
    )
    parser.add_argument("--no-ledger", action="store_true", help="show that the check can fail")
    parser.add_argument("--json", action="store_true", help="the figures again, as JSON")
    parser.add_argument("--tasks", type=int, default=0, help="only the first N")
    options = parser.parse_args(arguments)
    if options.data is None or not (Path(options.data) / "tasks.json").exists():
        parser.error("--data must name a directory with tasks.json")
    if options.workers and not os.environ.get("REDIS_URL"):
        parser.error("--workers needs REDIS_URL")
    if options.kill and options.workers < 2:
        parser.error("--kill needs at least two --workers")
    return options


@contextmanager
def fresh_database(url: str, folder: Path) -> Iterator[str]:
    """The URL of a new database, removed at the end."""
    if not url.startswith("postgres"):
        yield f"sqlite:///{folder / 'db.sqlite3'}"
        return
    from benchmarks.server import Server

    server, name = Server(url), f"retail_{os.getpid()}"
    try:
        yield server.create(name)
    finally:
        server.drop(name)


def set_up(environment: dict[str, str]) -> None:
    """Django with the benchmarks' settings, its tables, and the two users."""
    os.environ.update(environment)
    import django  # the environment has to be there first

    django.setup()
    from django.core.management import call_command

    from benchmarks.people import create_people

    call_command("migrate", verbosity=0)
    create_people("customer", "clerk")


class Workers:
    """The worker processes of a run; every `pause` seconds one is killed and replaced."""

    def __init__(
        self, number: int, environment: dict[str, str], folder: Path, pause: float
    ) -> None:
        self._environment, self._folder, self._pause = environment, folder, pause
        self._logs = 0
        self._processes = [self._start() for _ in range(number)]
        for process in self._processes:
            process.wait_until(WORKER_READY)
        self._next = time.monotonic() + pause
        self.kills = 0

    def _start(self) -> SiteProcess:
        self._logs += 1
        log = self._folder / f"worker-{self._logs}.log"
        return start_workers(1, THREADS, self._environment, log)

    def turn(self) -> None:
        """Called again and again: when it is time, kill the oldest process and start another.

        Only while all are up, so that somebody is always there to take the work over.
        """
        if not self._pause or time.monotonic() < self._next:
            return
        if all(WORKER_READY in process.output() for process in self._processes):
            self._processes.pop(0).kill()
            self.kills += 1
            self._processes.append(self._start())
            self._next = time.monotonic() + self._pause

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()


def people_answer(store: Any) -> int:
    """Let people answer everything that waits now; returns how many decisions were made.

    Approvals are given by the clerk. What a node asks (only without the ledger) is answered yes;
    what became of a call whose worker died is read from the journal.
    """
    from django.contrib.auth import get_user_model

    from agentruntime.lifecycle import resume_run
    from agentruntime.models import Interrupt
    from approvals.decide import decide
    from approvals.models import Approval

    clerk = get_user_model().objects.get(username="clerk")
    waiting = Approval.objects.filter(status="pending").values_list("pk", flat=True)
    decided = [decide(approval_id=pk, verdict="approve", user=clerk) for pk in waiting]
    questions = Interrupt.objects.filter(status="open").exclude(kind="approval")
    for question in questions.select_related("tool_execution"):
        value: Any = True
        if question.kind == "outcome":
            line = store.outcome(question.tool_execution.call_key)
            value = {"outcome": "retry"}
            if line:
                value = {"outcome": "succeeded", "result": line["result"]}
        resume_run(interrupt_id=question.pk, value=value, user=clerk)
    return len(decided)


def work_off(tasks: list[dict[str, Any]], graph: str, store: Any, workers: Workers) -> Any:
    """Start a run for each task and answer until all have ended; returns the runs and decisions."""
    from django.contrib.auth import get_user_model

    from agentruntime.lifecycle import start_run
    from agentruntime.models import Run
    from benchmarks.retail_agents import opening

    customer = get_user_model().objects.get(username="customer")
    config = {"recursion_limit": 100}
    runs = [
        start_run(graph=graph, input=opening(task), user=customer, config=config) for task in tasks
    ]
    decided, until = 0, time.monotonic() + LIMIT_S
    while Run.objects.active().exists() and time.monotonic() < until:
        answered = people_answer(store)
        decided += answered
        workers.turn()
        if not answered:
            time.sleep(0.01)
    return [Run.objects.get(pk=run.pk) for run in runs], decided


def judge(tasks: list[dict[str, Any]], runs: list[Any], store: Any, data: Path) -> list[str]:
    """What is wrong with each task that is not exact, one line for each.

    A task is also wrong if the runtime's own invariants find its stored history impossible.
    """
    from agentruntime.invariants import Scope, find_violations
    from benchmarks.retail_shop import load
    from benchmarks.retail_store import expected_of, faults

    shop, lines = load(data), []
    impossible: dict[str, list[str]] = {}
    for one in find_violations(Scope()):
        impossible.setdefault(str(one.thread), []).append(f"{one.invariant}: {one.detail}")
    for task, run in zip(tasks, runs, strict=True):
        found = faults(store, str(run.thread_id), expected_of(task["actions"], shop))
        found += impossible.pop(str(run.thread_id), [])
        if run.status != "completed":
            found.insert(0, f"the run is {run.status} {run.error_code} {run.error_detail}")
        if found:
            lines.append(f"task {task['id']}: {'; '.join(found)}")
    return lines


def steps_done() -> int:
    """How many nodes have been run to their commit; an input is a checkpoint, but no step."""
    from agentruntime.models import Checkpoint

    return Checkpoint.objects.exclude(node="").count()


def report(tasks: list[Any], wrong: list[str], steps: int, wall: float) -> dict[str, Any]:
    """Print the faults and the figures; returns the figures."""
    for line in wrong[:20]:
        print(line if len(line) < 400 else line[:400] + " ...")
    if len(wrong) > 20:
        print(f"... and {len(wrong) - 20} more")
    print(f"{len(tasks) - len(wrong)} of {len(tasks)} exact")
    print(f"{wall:.1f} s, {steps} steps, {steps / wall:.0f} steps per second")
    return {"wrong": len(wrong), "wall_s": wall, "steps_s": steps / wall}


def main(arguments: list[str] | None = None) -> int:
    """Run and judge; 0 if every task is exact."""
    options = options_of(arguments)
    tasks = json.loads((options.data / "tasks.json").read_text())
    tasks = tasks[: options.tasks or None]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="retail-")))
        url = stack.enter_context(fresh_database(options.database, folder))
        environment = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": url,
            "RETAIL_DATA": str(options.data),
            "RETAIL_JOURNAL": str(folder / "journal.jsonl"),
            "BENCH_INLINE": "" if options.workers else "true",
        }
        set_up(environment)
        from agentruntime.broker import stop_embedded_worker
        from benchmarks.retail_store import Store

        store = Store(options.data, folder / "journal.jsonl")
        stack.callback(stop_embedded_worker)
        workers = Workers(options.workers, environment, folder, options.kill)
        stack.callback(workers.stop)
        begun = time.monotonic()
        graph = "retail_without_ledger" if options.no_ledger else "retail"
        runs, decided = work_off(tasks, graph, store, workers)
        wall = time.monotonic() - begun
        wrong = judge(tasks, runs, store, options.data)
        print(
            f"{url.partition(':')[0]}, {options.workers or 'no'} worker processes, "
            f"{decided} decisions, "
            f"{workers.kills} killed{', without the ledger' if options.no_ledger else ''}"
        )
        figures = report(tasks, wrong, steps_done(), wall)
        if options.json:
            print(json.dumps(figures))
    return 1 if wrong else 0


if __name__ == "__main__":
    # Threads of the worker in this process would go on; everything is written.
    code = main()
    sys.stdout.flush()
    os._exit(code)
