"""The record of decisions: appending to the chain, and finding out whether anybody touched it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

from agentruntime.graph.json_values import canonical_json
from approvals.immutability import missing_guards
from approvals.models import Approval, Chain, Decision, Status
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


def verify_record(anchor: tuple[int, str] | None = None) -> tuple[list[Fault], int, str]:
    """Return every fault of the record, its length and the hash at its end.

    Beside the chain it checks that the database still guards it, and that each closed approval
    agrees with the decision that closed it. `anchor` is an end that was noted elsewhere before.
    """
    faults = list(verify_chain())
    if anchor is not None:
        there = Decision.objects.filter(number=anchor[0], hash=anchor[1]).exists()
        if not there and anchor != (0, GENESIS):
            faults.append(Fault(anchor[0], "is not the one that the anchor names"))
    if missing := missing_guards(connection):
        faults.append(Fault(0, f"are not guarded: the triggers {', '.join(missing)} are gone"))
    faults.extend(_faults_of_approvals())
    chain = Chain.objects.filter(pk="decisions").first()
    return faults, chain.length if chain else 0, chain.head if chain else GENESIS


def read_anchor(text: str) -> tuple[int, str]:
    """Return the number and the hash of `NUMBER:HASH`. Raises `ValueError`."""
    number, _, head = text.partition(":")
    if len(head) != 64 or not set(head) <= set("0123456789abcdef"):
        raise ValueError(text)
    return int(number), head


def _faults_of_approvals() -> Iterator[Fault]:
    words = {Status.APPROVED: "approve", Status.DECLINED: "decline"}
    decided = Approval.objects.filter(status__in=words).prefetch_related("decisions")
    for approval in decided.iterator(chunk_size=500):
        final = [one for one in approval.decisions.all() if one.is_final]
        if not final:
            yield Fault(0, f"do not hold one for the approval {approval.pk}, {approval.status}")
        elif final[0].verdict != words[approval.status] or final[0].digest != approval.digest:
            yield Fault(final[0].number, f"says something else than the approval {approval.pk}")
    answered = Decision.objects.filter(is_final=True).exclude(approval__status__in=words)
    for decision in answered.select_related("approval"):
        if decision.approval.status != Status.SUPERSEDED:
            yield Fault(decision.number, f"closed an approval that is {decision.approval.status}")


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
