"""The record of decisions: appending to the chain, and finding out whether anybody touched it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentruntime.graph.json_values import canonical_json
from approvals.models import Chain, Decision
from approvals.models.chain import GENESIS

# The columns that the statement holds, in the words of the statement.
SIGNED = (
    "number", "id", "approval_id", "verdict", "user_id", "by", "at", "door", "digest",
    "shown_digest", "reason", "arguments", "seen", "is_final", "rule", "rights", "seconds_shown",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One decision that is not what it was, or is not there."""

    number: int
    problem: str


def append_decision(**facts: Any) -> Decision:
    """Write a decision at the end of the chain; the last thing a deciding transaction does."""
    chain = Chain.locked()
    decision = Decision(number=chain.length + 1, previous_hash=chain.head, **facts)
    decision.statement = canonical_json({name: told(getattr(decision, name)) for name in SIGNED})
    decision.hash = link(chain.head, decision.statement)
    decision.save(force_insert=True)
    chain.append(decision.hash)
    return decision


def link(previous: str, statement: str) -> str:
    """Return the hash of a statement that stands after `previous`."""
    return hashlib.sha256(f"{previous}\n{statement}".encode()).hexdigest()


def told(value: Any) -> Any:
    """Return a column's value as it stands in a statement: plain JSON, other types as text."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float | list | dict):
        return value
    return str(value)


def verify_chain() -> Iterator[Fault]:
    """Yield every fault of the record, in order. Nothing is yielded for an untouched one."""
    previous, expected = GENESIS, 1
    for decision in Decision.objects.order_by("number").iterator(chunk_size=500):
        for number in range(expected, decision.number):
            yield Fault(number, "is missing")
        yield from _faults_of(decision, previous)
        previous, expected = decision.hash, decision.number + 1
    chain = Chain.objects.filter(pk="decisions").first()
    length, head = (chain.length, chain.head) if chain else (0, GENESIS)
    for number in range(expected, length + 1):
        yield Fault(number, "is missing at the end")
    if length < expected - 1 or (length == expected - 1 and head != previous):
        yield Fault(length, "is not where the chain says it ends")


def _faults_of(decision: Decision, previous: str) -> Iterator[Fault]:
    if decision.previous_hash != previous:
        yield Fault(decision.number, "does not follow the one before it")
    if decision.hash != link(decision.previous_hash, decision.statement):
        yield Fault(decision.number, "has another hash than its statement")
    try:
        statement = json.loads(decision.statement)
    except ValueError:
        yield Fault(decision.number, "has a statement that cannot be read")
        return
    wrong = [name for name in SIGNED if told(getattr(decision, name)) != statement.get(name)]
    if wrong:
        yield Fault(decision.number, f"says something else than was signed: {', '.join(wrong)}")
