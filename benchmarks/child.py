"""One bench of one contender in one process: `python -m benchmarks.child NAME METHOD ...`.

Prints READY when everything is set up and starts on a line of input; prints MARK at each size of a
growing thread and waits again; ends with one line RESULT and JSON. Times are `perf_counter`, which
on Linux is one clock for all processes of the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
import time
from typing import Any

from benchmarks.contenders import CONTENDERS, Contender, Place

Json = dict[str, Any]


def say(word: str, value: Json | None = None) -> None:
    """One line to the driver."""
    print(word, json.dumps(value or {}), flush=True)


def wait_for(word: str, value: Json | None = None) -> None:
    """Say a word and wait until the driver says go."""
    say(word, value)
    sys.stdin.readline()


def peak_kib() -> int:
    """The most memory that this process has held, KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def migrate(contender: Contender, sizes: Json) -> Json:
    """Create the schema."""
    contender.migrate()
    return {}


def verify(contender: Contender, sizes: Json) -> Json:
    """Whether what a bench has left behind can have happened."""
    return {"violations": contender.verify()}


def step(contender: Contender, sizes: Json) -> Json:
    """Runs of `steps` steps, one after the other, for `seconds`."""
    contender.open()
    contender.step("warm-up", sizes["steps"])
    wait_for("READY")
    gaps: list[float] = []
    walls: list[float] = []
    until = time.perf_counter() + sizes["seconds"]
    while time.perf_counter() < until:
        begun = time.perf_counter()
        gaps += contender.step(f"run {len(walls)}", sizes["steps"])
        walls.append(time.perf_counter() - begun)
    counted = contender.statements(sizes["steps"])
    uncounted = sizes["steps"] * (1 if counted is None else 2)
    return {
        "gaps": gaps,
        "walls": walls,
        "steps": len(gaps),
        "uncounted": uncounted,
        "statements_step": counted,
    }


def many(contender: Contender, sizes: Json) -> Json:
    """Sets of `threads` runs at once, one set after the other, for `seconds`."""
    contender.open()
    names = [f"warm-up {contender.place.process} {n}" for n in range(sizes["threads"])]
    contender.many(names, sizes["steps"])
    wait_for("READY")
    cpu, begun, told = time.process_time(), time.perf_counter(), []
    while time.perf_counter() < begun + sizes["seconds"]:
        names = [f"{contender.place.process} {len(told)} {n}" for n in range(sizes["threads"])]
        told.append(contender.many(names, sizes["steps"]))
    ended, elsewhere = time.perf_counter(), [one for one in told if one]
    return {
        "begun": begun,
        "ended": ended,
        "steps": len(told) * sizes["threads"] * sizes["steps"],
        "uncounted": sizes["threads"] * sizes["steps"],
        "cpu_s": sum(one["cpu_s"] for one in elsewhere) or time.process_time() - cpu,
        "rss_kib": max((one["rss_kib"] for one in elsewhere), default=peak_kib()),
    }


def grow(contender: Contender, sizes: Json) -> Json:
    """Grow one thread through the marks; the driver reads the sizes at each.

    The first figure needs turns that are warm, so other threads grow to the first mark before.
    """
    contender.open()
    first = sizes["marks"][0]
    begin = [contender.grow(f"warm-up {n}", 0, first, sizes["size"]) for n in range(3)]
    begin += [contender.grow(f"short {n}", 0, first, sizes["size"]) for n in range(5)]
    wait_for("READY")
    have, rows = 0, []
    for mark in sizes["marks"]:
        took = contender.grow("long", have, mark, sizes["size"])
        rows.append({"mark": mark, "took": took})
        have = mark
        wait_for("MARK", {"mark": mark})
    return {"rows": rows, "short": [turn for turns in begin[3:] for turn in turns]}


def tools(contender: Contender, sizes: Json) -> Json:
    """Turns of parallel tools, one after the other."""
    contender.open()
    given = (sizes["count"], sizes["seconds"], sizes["mode"])
    for number in range(3):
        contender.tools(f"warm-up {number}", *given)
    wait_for("READY")
    turns = [contender.tools(f"turn {number}", *given) for number in range(sizes["repeat"])]
    return {"turns": turns, "seconds": sizes["seconds"], "uncounted": 3}


def answer(contender: Contender, sizes: Json) -> Json:
    """Threads that wait are answered, one after the other."""
    contender.open()
    names = [f"waits {number}" for number in range(sizes["repeat"] + 3)]
    for name in names:
        contender.pause(name, sizes["messages"], sizes["size"])
    for name in names[:3]:
        contender.answer(name)
    wait_for("READY")
    return {"answers": [contender.answer(name) for name in names[3:]]}


def rest(contender: Contender, sizes: Json) -> Json:
    """As `answer`, with `idle` seconds of silence before each."""
    contender.open()
    names = [f"waits {number}" for number in range(sizes["repeat"] + 3)]
    for name in names:
        contender.pause(name, sizes["messages"], sizes["size"])
    for name in names[:3]:
        contender.rest(name)
    wait_for("READY")
    answers = []
    for name in names[3:]:
        time.sleep(sizes["idle"])
        answers.append(contender.rest(name))
    return {"answers": answers}


def waiting(contender: Contender, sizes: Json) -> Json:
    """Runs that wait, all at once."""
    contender.open()
    wait_for("READY")
    return dict(contender.waiting(**sizes))


def pause(contender: Contender, sizes: Json) -> Json:
    """Leave the thread that `cold` answers in another process."""
    contender.open()
    contender.pause("cold", sizes["messages"], sizes["size"])
    return {}


def cold(contender: Contender, sizes: Json) -> Json:
    """Answer a waiting thread in a process that has just been started."""
    imported = time.perf_counter()
    contender.open()
    return {"imported": imported, **contender.answer("cold")}


UNOPENED = ("migrate", "verify")
METHODS = {
    f.__name__: f
    for f in (migrate, verify, step, many, grow, tools, answer, rest, waiting, pause, cold)
}


def main() -> None:
    """Read the command line, run, print the result, and leave without waiting for threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=sorted(CONTENDERS))
    parser.add_argument("method", choices=sorted(METHODS))
    parser.add_argument("--sizes", type=json.loads, default={})
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--redis", default="")
    parser.add_argument("--process", type=int, default=0)
    options = parser.parse_args()
    module = importlib.import_module(
        "benchmarks.contenders." + CONTENDERS[options.contender].module
    )
    threads = options.sizes.get("threads", 16)
    place = Place(options.dsn, options.redis, options.process, threads, options.method)
    contender = module.Contender(place)
    contender.load()
    result = METHODS[options.method](contender, options.sizes)
    if options.method not in UNOPENED:
        contender.close()
    say("RESULT", {"rss_kib": peak_kib(), **result})
    os._exit(0)


if __name__ == "__main__":
    main()
