"""The history beside the books of a provider: a file of JSON lines that it kept by itself.

Each line has `phase` (received, applied, replayed, refused) and `key`, the idempotency key of the
call; other members are the provider's own. Found are effects without an intent, effects that
happened twice, and results without an effect.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from agentruntime.invariants.core import Scope, Violation
from agentruntime.models import CallStatus, ToolExecution


def compare_with_bank(file: Path, scope: Scope | None = None) -> Iterator[Violation]:
    """Yield what the provider's file and the ledger do not agree about.

    A key is looked up in the whole database; calls are held against the file only where their tool
    is one that the file knows.
    """
    applied: Counter[str] = Counter()
    seen: set[str] = set()
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        seen.add(entry["key"])
        applied[entry["key"]] += entry["phase"] == "applied"
    for key, times in applied.items():
        if times > 1:
            yield Violation("one effect per key", "", "", f"{key} was applied {times} times")
    rows = ToolExecution.objects.filter(thread__in=(scope or Scope()).threads())
    calls = {row.call_key: row for row in rows.iterator()}
    for key in sorted(seen):
        row = calls.get(key)
        if row is None and scope is None:
            yield Violation("no effect without intent", "", "", f"{key} is in no ledger")
        elif row is not None and row.first_started_at is None:
            yield _of(row, "no effect without intent", "it was never started")
    known = {row.tool for key, row in calls.items() if key in seen}
    for row in calls.values():
        if row.tool in known and row.status == CallStatus.SUCCEEDED and not applied[row.call_key]:
            yield _of(row, "no result without an effect", "the provider has applied nothing")


def _of(row: ToolExecution, name: str, detail: str) -> Violation:
    return Violation(name, str(row.thread_id), str(row.run_id), f"{row.call_key}: {detail}")
