"""The benches as data: what is run, how big, by how many processes, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Params = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """One row of the table.

    `method` is the contender's method (and the child's function); `params` its sizes in full,
    `quick` those that differ in a quick run; `processes` how many children share one database;
    `headline` the metric that ratios are formed on, higher being better if `higher`; a `slow` one
    is left out of a quick run; one that is done `once` has all its trials in the first round.
    """

    title: str
    method: str
    headline: str
    params: Params = field(default_factory=dict)
    quick: Params = field(default_factory=dict)
    processes: int = 1
    higher: bool = False
    slow: bool = False
    once: bool = False

    def sizes(self, quick: bool) -> Params:
        """The parameters of a full or a quick run."""
        return {**self.params, **(self.quick if quick else {})}


TOOLS = {"count": 8, "seconds": 0.05, "repeat": 8}

BENCHES = {
    "step": Bench(
        "one durable step, 50 in a row",
        "step",
        "ms_step",
        {"steps": 50, "seconds": 1.5},
        {"seconds": 0.5},
    ),
    "many_1": Bench(
        "16 threads at once, 20 steps each, 1 process",
        "many",
        "steps_s",
        {"threads": 16, "steps": 20, "seconds": 2.0},
        {"seconds": 0.7},
        higher=True,
    ),
    "many_2": Bench(
        "16 threads at once, 20 steps each, 2 processes of 8",
        "many",
        "steps_s",
        {"threads": 8, "steps": 20, "seconds": 2.0},
        {"seconds": 0.7},
        processes=2,
        slow=True,
        higher=True,
    ),
    "grow": Bench(
        "a thread grows to 1,000 messages of 500 bytes",
        "grow",
        "ms_at_1000",
        {"marks": [10, 100, 500, 1000], "size": 500, "before": 3},
        {},
    ),
    "tools_async": Bench(
        "8 parallel tools of 50 ms, async",
        "tools",
        "overhead_ms",
        {**TOOLS, "mode": "async"},
        {"repeat": 4},
    ),
    "tools_sync": Bench(
        "8 parallel tools of 50 ms, sync",
        "tools",
        "overhead_ms",
        {**TOOLS, "mode": "sync"},
        {"repeat": 4},
    ),
    "answer": Bench(
        "answer given to gated tool running, process up",
        "answer",
        "to_tool_ms",
        {"messages": 10, "size": 500, "repeat": 30},
        {"repeat": 15},
    ),
    "rest": Bench(
        "REST decision to gated tool running in another, idle process",
        "rest",
        "to_tool_ms",
        {"messages": 10, "size": 500, "repeat": 20, "idle": 0.5},
        {"repeat": 8, "idle": 0.2},
    ),
    "cold": Bench(
        "fresh process, paused thread of 1,000 messages, to the tool",
        "cold",
        "from_exec_ms",
        {"messages": 1000, "size": 500},
    ),
    "waiting": Bench(
        "500 runs that each wait 2 s in an async model call, 2 worker processes",
        "waiting",
        "done_s",
        {"runs": 500, "seconds": 2.0, "workers": 2, "threads": 250},
        slow=True,
    ),
    "retail": Bench("the retail tasks, 2 worker processes", "retail", "wrong", slow=True),
    "faults": Bench(
        "30 workers killed, 30 told to end, 60 decisions, 30 stops",
        "faults",
        "kill_s",
        {"rounds": 30},
        slow=True,
        once=True,
    ),
    "import": Bench("import", "import", "import_ms"),
}
