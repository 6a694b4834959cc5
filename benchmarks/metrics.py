"""What a bench's raw result says: named numbers, lower being better unless a bench says so.

`ms_` and `_ms` are milliseconds, `_kb` and `_mb` thousands and millions of bytes, `_mib` MiB of
memory; `_step` and `_turn` are per step and per turn of tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.benches import BENCHES
from benchmarks.rounds import Numbers
from benchmarks.stats import median, percentile

Json = dict[str, Any]


def numbers_of(bench: str, result: Json) -> Numbers:
    """The metrics of one result of a bench; the bench's headline is among them."""
    numbers = READERS[BENCHES[bench].method](result)
    return {name: value for name, value in numbers.items() if value is not None}


def per(count: float | None, of: float) -> Any:
    """A count per unit, or None where there is no count."""
    return None if count is None else count / of


def of_steps(result: Json) -> Json:
    """The whole of each run over its steps; counts include the warm-up, times do not."""
    counted = result["steps"] + result["uncounted"]
    return {
        "ms_step": sum(result["walls"]) / result["steps"] * 1000,
        "p50_ms": median(result["gaps"]) * 1000,
        "p99_ms": percentile(result["gaps"], 99) * 1000,
        "transactions_step": per(result["transactions"], counted),
        "flushes_step": per(result["flushes"], counted),
        "wal_kb_step": result["wal_bytes"] / counted / 1000,
        "statements_step": result.get("statements_step"),
    }


def of_many(result: Json) -> Json:
    """The rates of all processes added up; memory is of the largest, CPU of all."""
    parts = result["processes"]
    steps = sum(part["steps"] for part in parts)
    counted = steps + sum(part["uncounted"] for part in parts)
    return {
        "steps_s": sum(part["steps"] / (part["ended"] - part["begun"]) for part in parts),
        "cpu_ms_step": sum(part["cpu_s"] for part in parts) / steps * 1000,
        "peak_mib": max(part["rss_kib"] for part in parts) / 1024,
        "flushes_step": per(result["flushes"], counted),
        "wal_kb_step": result["wal_bytes"] / counted / 1000,
    }


def of_growth(result: Json) -> Json:
    """At each mark the median of the last five turns; at the first one of eight short threads."""
    numbers: Json = {}
    for row, seen in zip(result["rows"], result["marks"], strict=True):
        mark = row["mark"]
        short = result["short"] if row is result["rows"][0] else []
        numbers[f"ms_at_{mark}"] = median([*row["took"][-5:], *short]) * 1000
        numbers[f"wal_kb_at_{mark}"] = seen["wal_bytes"] / 1000
        numbers[f"size_kb_at_{mark}"] = seen["size"] / 1000
        numbers[f"redis_kb_at_{mark}"] = seen["redis_bytes"] / 1000
    first, last = result["rows"][0]["mark"], result["rows"][-1]["mark"]
    numbers["growth"] = numbers[f"ms_at_{last}"] / numbers[f"ms_at_{first}"]
    numbers["wal_mb"] = numbers[f"wal_kb_at_{last}"] / 1000
    if 100 in (row["mark"] for row in result["rows"]):
        numbers["wal_growth"] = numbers[f"wal_kb_at_{last}"] / numbers["wal_kb_at_100"]
    return numbers


def of_tools(result: Json) -> Json:
    """What a turn takes above the time that one tool sleeps."""
    turns = result["turns"]
    return {
        "overhead_ms": (median(turns) - result["seconds"]) * 1000,
        "worst_ms": (max(turns) - result["seconds"]) * 1000,
        "flushes_turn": per(result["flushes"], len(turns) + result["uncounted"]),
    }


def of_answers(result: Json) -> Json:
    """From the answer handed in to the tool's first line, and to the end of the run."""
    to_tool = [one["to_tool"] for one in result["answers"]]
    return {
        "to_tool_ms": median(to_tool) * 1000,
        "to_tool_p99_ms": percentile(to_tool, 99) * 1000,
        "to_done_ms": median(one["to_done"] for one in result["answers"]) * 1000,
    }


def of_cold(result: Json) -> Json:
    """From the start of the process to the tool's first line, and the part after imports."""
    return {
        "from_exec_ms": (result["tool_at"] - result["exec_at"]) * 1000,
        "after_import_ms": (result["tool_at"] - result["imported"]) * 1000,
        "peak_mib": result["rss_kib"] / 1024,
    }


def of_waiting(result: Json) -> Json:
    """Until all runs are done, and what they held meanwhile."""
    return {
        "done_s": result["done_s"],
        "connections": result["connections"],
        "peak_mib": result["peak_kib"] / 1024,
    }


def of_import(result: Json) -> Json:
    """A process that only imports, less one that imports nothing; the CPU time of the same."""
    return {
        "import_ms": result["wall"] * 1000,
        "import_cpu_ms": result["cpu"] * 1000,
        "peak_mib": result["rss_kib"] / 1024,
    }


READERS: dict[str, Callable[[Json], Json]] = {
    "step": of_steps,
    "many": of_many,
    "grow": of_growth,
    "tools": of_tools,
    "answer": of_answers,
    "rest": of_answers,
    "cold": of_cold,
    "waiting": of_waiting,
    "retail": dict,
    "faults": dict,
    "import": of_import,
}
