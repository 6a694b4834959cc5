"""The shop of the retail benchmark as a store that many processes share, and its journal.

The journal is the store: a file of JSON lines, one for each write that was EXECUTED (refused ones
too), appended and fsynced under a file lock, outside every database transaction. What the shop
looks like is the data directory with the journal's lines played over it, so a write and its line
cannot be torn apart by a kill: a write has happened exactly if its line is complete.

Several tasks of the data touch the same orders (order #W6390527 belongs to five), and each expects
to find the data fresh. So every task has a namespace of its own, its thread; a write is seen only
in its namespace, and the result of a task does not depend on what runs beside it.

The store does not remember call keys unless it is asked to (`honour_key`): it is the harshest
provider there is, and a call that the runtime makes twice stands in the journal twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.retail_shop import Shop, load

Json = Any
WRITES = frozenset(
    {
        "cancel_pending_order",
        "modify_pending_order_items",
        "modify_pending_order_address",
        "modify_pending_order_payment",
        "return_delivered_order_items",
        "exchange_delivered_order_items",
        "modify_user_address",
    }
)


def dumps(value: Json) -> str:
    """JSON text; a Decimal becomes the number it reads as (two decimals survive a float)."""
    return json.dumps(value, default=float, sort_keys=True)


def plain(value: Json) -> Json:
    """A copy of JSON-like data without Decimals, safe to hand out."""
    return json.loads(dumps(value))


class Store:
    """The shop over `data` (a directory) and `journal` (a file, made when it is missing).

    Safe for several threads of several processes; every process opens its own `Store`.
    """

    def __init__(self, data: Path, journal: Path) -> None:
        self._data = load(data)
        self._file = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._shops: dict[str, Shop] = {}
        self._lines: list[dict[str, Json]] = []
        self._by_key: dict[str, dict[str, Json]] = {}
        self._read_to = 0

    def read(self, namespace: str, tool: str, arguments: dict[str, Json]) -> Json:
        """The answer of a reading tool, as the namespace is now."""
        with self._lock:
            self._catch_up()
            return plain(self._shop(namespace).call(tool, arguments))

    def write(
        self,
        namespace: str,
        key: str,
        tool: str,
        arguments: dict[str, Json],
        *,
        honour_key: bool = False,
    ) -> Json:
        """Execute a writing tool once, journal it, and answer.

        With `honour_key` a key that was executed before is answered from the journal and nothing
        is executed or written.
        """
        with self._lock, self._alone():
            self._catch_up()
            if honour_key and key in self._by_key:
                return self._by_key[key]["result"]
            line = {"namespace": namespace, "key": key, "tool": tool, "arguments": arguments}
            line["result"] = self._take(line)
            data = (dumps(line) + "\n").encode()
            os.write(self._file, data)
            os.fsync(self._file)
            self._read_to += len(data)
            return line["result"]

    def outcome(self, key: str) -> dict[str, Json] | None:
        """The journal's first line with this call key, or None when none was executed."""
        with self._lock:
            self._catch_up()
            return self._by_key.get(key)

    def journal(self, namespace: str | None = None) -> list[dict[str, Json]]:
        """The journal's lines in order, of one namespace or of all.

        A line is {"namespace", "key", "tool", "arguments", "result"}.
        """
        with self._lock:
            self._catch_up()
            return [x for x in self._lines if namespace in (None, x["namespace"])]

    def state(self, namespace: str) -> dict[str, dict[str, Json]]:
        """The end state {"orders": {id: order}, "users": {id: user}}: only what was changed."""
        with self._lock:
            self._catch_up()
            return plain(self._shop(namespace).state())

    def _shop(self, namespace: str) -> Shop:
        return self._shops.setdefault(namespace, Shop(self._data))

    def _take(self, line: dict[str, Json]) -> Json:
        """Play a line over its namespace and remember it; returns its result."""
        answer = self._shop(line["namespace"]).call(line["tool"], line["arguments"])
        self._lines.append(line)
        self._by_key.setdefault(line["key"], line)
        return plain(answer)

    def _catch_up(self) -> None:
        """Play the complete lines that others appended since the last look."""
        size = os.fstat(self._file).st_size
        if size <= self._read_to:
            return
        data = os.pread(self._file, size - self._read_to, self._read_to)
        data = data[: data.rfind(b"\n") + 1]
        for text in data.splitlines():
            self._take(json.loads(text))
        self._read_to += len(data)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file lock; a half line left by a process that was killed is cut off."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._catch_up()
            os.ftruncate(self._file, self._read_to)
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Expected:
    """What a task must leave when each of its calls runs once: end state and writes."""

    state: dict[str, dict[str, Json]]
    writes: Counter[str] = field(default_factory=Counter)
    refused: int = 0


def expected_of(actions: list[dict[str, Json]], data: dict[str, dict[str, Json]]) -> Expected:
    """Play a task's calls ({"name", "arguments"}, in order) once, each on the task's fresh shop.

    `data` is what `retail_shop.load` returned.
    """
    shop, writes, refused = Shop(data), Counter[str](), 0
    for action in actions:
        answer = shop.call(action["name"], action["arguments"])
        if action["name"] in WRITES:
            writes[call_text(action["name"], action["arguments"])] += 1
            refused += isinstance(answer, str) and answer.startswith("Error:")
    return Expected(plain(shop.state()), writes, refused)


def call_text(tool: str, arguments: dict[str, Json]) -> str:
    """A call as one comparable text."""
    return dumps([tool, arguments])


def faults(store: Store, namespace: str, expected: Expected) -> list[str]:
    """Why a task is not exact, as sentences; empty when it is.

    Exact: the end state equals the expected one, the journal holds every write exactly once,
    and no two lines share a call key.
    """
    found = []
    if store.state(namespace) != expected.state:
        found.append("the end state differs")
    lines = store.journal(namespace)
    written = Counter(call_text(x["tool"], x["arguments"]) for x in lines)
    found += [
        f"executed {n - expected.writes[c]} times too often: {c}"
        for c, n in written.items()
        if n > expected.writes[c]
    ]
    found += [
        f"executed {n - written[c]} times too few: {c}"
        for c, n in expected.writes.items()
        if n > written[c]
    ]
    keys = Counter(x["key"] for x in lines)
    found += [f"key used {n} times: {key}" for key, n in keys.items() if n > 1]
    return found
