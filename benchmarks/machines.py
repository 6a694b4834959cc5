"""How far one PostgreSQL carries: the same work by 1, 2, 4, 8 worker processes.

    python -m tests.services --durable -- python -m benchmarks.machines [--processes 1,2,4,8]

Prints steps per second, where the CPU goes (workers, PostgreSQL), and flushes of the log per step.
All of it shares this machine, so the ceiling is that of its cores; the model in
`docs/operating.md` starts from the CPU of one step.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import TICKS, WORKER_READY, cpu_s, parents_of_all, start_workers, stat_of
from benchmarks.server import Server
from benchmarks.stats import shown

STEPS = 20
THREADS = 16


def main(arguments: list[str] | None = None) -> int:
    """Measure each number of processes on a fresh database."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines", description=__doc__)
    parser.add_argument("--processes", default="1,2,4,8", help="numbers of worker processes")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each")
    options = parser.parse_args(arguments)
    server = Server(os.environ["DATABASE_URL"])
    os.environ |= {
        "DATABASE_URL": server.create("bench_machines"),
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "BENCH_MARKS": "none",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    print(
        "| worker processes | steps/s | worker CPU, ms a step | PostgreSQL CPU | flushes a step |"
    )
    print("|---|---|---|---|---|")
    for processes in map(int, options.processes.split(",")):
        print("| " + " | ".join(measure(server, processes, options.seconds)) + " |", flush=True)
    return 0


def measure(server: Server, processes: int, seconds: float) -> list[str]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        workers = start_workers(processes, THREADS, {}, log).wait_until(WORKER_READY, processes)
        try:
            work(processes, 1.0)
            postmaster, cpu = postmaster_pid(), workers.cpu_s()
            theirs, before = server_cpu_s(postmaster), server.counts("bench_machines")
            begun = time.monotonic()
            steps = work(processes, seconds)
            took = time.monotonic() - begun
            cpu, theirs = workers.cpu_s() - cpu, server_cpu_s(postmaster) - theirs
        finally:
            workers.kill()
    time.sleep(0.2)
    flushes = server.counts("bench_machines").since(before)["flushes"]
    figures = (steps / took, 1000 * cpu / steps, 1000 * theirs / steps, flushes / steps)
    return [str(processes), *map(shown, figures)]


def work(processes: int, seconds: float) -> int:
    """Keep every thread of the workers busy for so long; returns the steps that were done."""
    from django.db import connection

    from agentruntime.lifecycle import start_run

    given: dict[str, Any] = {"messages": ["go"], "left": STEPS}
    at_once, ended, started = processes * THREADS, 0, 0
    until = time.monotonic() + seconds
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM agentruntime_run WHERE status = 'completed'")
        (before,) = cursor.fetchone()
        while started > ended or time.monotonic() < until:
            while started - ended < at_once and time.monotonic() < until:
                start_run(graph="bench_chain", input=given)
                started += 1
            time.sleep(0.01)
            cursor.execute("SELECT count(*) FROM agentruntime_run WHERE status = 'completed'")
            ended = cursor.fetchone()[0] - before
    return started * STEPS


def postmaster_pid() -> int:
    """The process that all sessions of the server are children of."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(stat_of(cursor.fetchone()[0])[1])


def server_cpu_s(postmaster: int) -> float:
    """CPU seconds of the server so far: its processes, and those that have ended."""
    children = [pid for pid, parent in parents_of_all().items() if parent == postmaster]
    fields = stat_of(postmaster)
    ended = (int(fields[13]) + int(fields[14])) / TICKS
    return ended + cpu_s(postmaster) + sum(map(cpu_s, children))


if __name__ == "__main__":
    sys.exit(main())
