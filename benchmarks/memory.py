"""Whether a worker grows with the runs that it has done.

    python -m tests.services -- python -m benchmarks.memory [--first 1000] [--last 10000]

One worker process of the site does some runs, then many more; what it holds in memory after the
last may be 3 % above what it held after the first. Each run has a thread of its own, three steps,
and two tools. The last line is `N of M goals met`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import WORKER_READY, SiteProcess, rss_kib, start_workers
from benchmarks.server import Server

LIMIT = 1.03
AT_ONCE = 200
THREADS = 16
QUIET_SECONDS = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Do the runs, read the worker's memory on the way, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--first", type=int, default=1_000, help="runs before the first figure")
    parser.add_argument("--last", type=int, default=10_000, help="runs before the last")
    options = parser.parse_args(arguments)
    environment = {
        "DATABASE_URL": Server(os.environ["DATABASE_URL"]).create("bench_memory"),
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "BENCH_MARKS": "none",
    }
    os.environ |= environment
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with tempfile.TemporaryDirectory() as folder:
        worker = start_workers(1, THREADS, environment, Path(folder) / "log")
        try:
            worker.wait_until(WORKER_READY)
            figures = measure(worker, options.first, options.last)
        finally:
            worker.kill()
    ratio = figures[-1][1] / figures[0][1]
    for runs, kib in figures:
        print(f"{runs:>7,} runs: {kib / 1024:.1f} MiB")
    print(f"after the last {100 * (ratio - 1):+.1f} %\n{int(ratio <= LIMIT)} of 1 goals met")
    return 0


def measure(worker: SiteProcess, first: int, last: int) -> list[tuple[int, int]]:
    """The memory of the worker in KiB after some numbers of runs, from `first` to `last`."""
    figures, done = [], 0
    for mark in sorted({first, *(first + (last - first) * n // 4 for n in range(1, 5))}):
        while done < mark:
            count = min(AT_ONCE, mark - done)
            do_runs(count)
            done += count
        time.sleep(QUIET_SECONDS)
        figures.append((mark, max(rss_kib(pid) for pid in worker.pids())))
    return figures


def do_runs(count: int) -> None:
    """Start so many runs and wait until they have ended."""
    from agentruntime.lifecycle import start_run
    from agentruntime.models import Run

    given = {"messages": [f"{time.monotonic_ns()}/2/0/sync"]}
    runs = [start_run(graph="bench_tools", input=given).pk for _ in range(count)]
    until = time.monotonic() + 120
    while Run.objects.filter(pk__in=runs, status="completed").count() < count:
        if time.monotonic() > until:
            raise TimeoutError("the runs have not ended")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
