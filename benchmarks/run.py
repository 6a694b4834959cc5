"""Side by side: the runtime, the floors and (where given) the peers; behind `make bench`.

    python -m benchmarks [--quick] [--rounds N] [--peers PYTHON] [--data DIR]
                         [--only BENCH,...] [--contenders NAME,...]
                         [--out FILE.json] [--results FILE.md]

A round runs every contender in every bench, each in a fresh process on a fresh database, the
contenders of a bench in a new order each time and right after each other. Ratios are formed
within a round. `DATABASE_URL` names a PostgreSQL server whose role may create databases, which
should have fsync on; `REDIS_URL` a Redis database that may be EMPTIED. The last line is
`N of M goals met`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.benches import BENCHES
from benchmarks.contenders import CONTENDERS
from benchmarks.driver import ChildFailed, Driver
from benchmarks.metrics import numbers_of
from benchmarks.report import closing_line, goals_table, machine, table_of, verdicts_of
from benchmarks.server import Server

QUICK_CONTENDERS = ("raw", "django_cursor", "django_dramatiq", "project")
Rounds = dict[str, dict[str, list[Any]]]


def names_in(table: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Reads names of a table, by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(table)):
            known = f"known are {', '.join(table)}"
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)!r}: {known}")
        return names

    return read


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument(
        "--quick",
        action="store_true",
        default=quick,
        help="the project and the nearest floors, one round, within 50 s",
    )
    parser.add_argument("--rounds", type=int, default=0, help="5, or 1 if quick")
    parser.add_argument(
        "--peers",
        default="",
        metavar="PYTHON",
        help="an interpreter that has the peers (3.12 or later)",
    )
    parser.add_argument("--data", type=Path, help="the retail data; its tasks are run too")
    parser.add_argument("--only", type=names_in(BENCHES), help="these benches")
    parser.add_argument("--contenders", type=names_in(CONTENDERS), help="these contenders")
    parser.add_argument("--out", type=Path, help="write every figure here, as JSON")
    parser.add_argument("--results", type=Path, help="write the tables here, as Markdown")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    return options


def contenders_of(options: argparse.Namespace) -> list[str]:
    """The contenders of a run: those named, else the quick ones or all that can run."""
    if options.contenders:
        return list(options.contenders)
    if options.quick:
        return list(QUICK_CONTENDERS)
    return [n for n, entry in CONTENDERS.items() if entry.kind != "peer" or options.peers]


def benches_of(options: argparse.Namespace) -> list[str]:
    """The benches of a run: those named, else all that fit into its time."""
    if options.only:
        return list(options.only)
    has_data = options.data is not None and (options.data / "tasks.json").exists()
    return [
        name
        for name, bench in BENCHES.items()
        if not (bench.slow and options.quick) and (has_data or bench.method != "retail")
    ]


def takes_part(name: str, bench: str) -> bool:
    """Whether a contender is in a bench."""
    entry = CONTENDERS[name]
    return bool(entry.imports) if bench == "import" else BENCHES[bench].method in entry.benches


def measure(driver: Driver, names: list[str], benches: list[str], rounds: int) -> Rounds:
    """All rounds. A child that fails is told on standard error and has no figure in its round."""
    taken: Rounds = {bench: {} for bench in benches}
    for number in range(rounds):
        for bench in benches:
            if number and BENCHES[bench].once:
                continue
            order = [name for name in names if takes_part(name, bench)]
            random.shuffle(order)
            for name in order:
                try:
                    numbers = numbers_of(bench, driver.run(name, bench))
                except ChildFailed as failure:
                    print(f"{name} failed in {bench}:\n{failure}", file=sys.stderr, flush=True)
                    numbers = None
                taken[bench].setdefault(name, []).append(numbers)
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return taken


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and judge."""
    options = options_of(arguments)
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        print("DATABASE_URL must name a PostgreSQL server.", file=sys.stderr)
        return 2
    begun, server = time.monotonic(), Server(url)
    names = contenders_of(options)
    facts = {**machine(), **server.description()}
    driver = Driver(
        server, os.environ.get("REDIS_URL", ""), options.peers, options.quick, options.data
    )
    try:
        rounds = measure(driver, names, benches_of(options), options.rounds)
        versions = [driver.versions(name) for name in names]
    finally:
        driver.close()
    facts |= {name: number for found in versions for name, number in found.items()}
    facts |= {"rounds": str(options.rounds), "seconds": f"{time.monotonic() - begun:.0f}"}
    verdicts = verdicts_of(rounds)
    text = "\n".join(
        [
            "; ".join(f"{name} {value}" for name, value in facts.items()),
            *filter(None, (table_of(bench, rounds) for bench in rounds)),
            goals_table(verdicts),
            "",
            closing_line(verdicts),
        ]
    )
    if options.out:
        options.out.write_text(json.dumps({"facts": facts, "rounds": rounds}, indent=1))
    if options.results:
        options.results.write_text(f"# Results\n\n{text}\n")
    print(text)
    return 0
