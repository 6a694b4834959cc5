"""Transactions that survive what databases do: lost connections, deadlocks, a full disk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    transaction,
)

T = TypeVar("T")

CONFLICT_TRIES = 5
"""How often a transaction is started again that lost to others."""
PATIENCE_SECONDS = 4.0
"""How long a caller waits for a database that is away. Workers have more, see `patient`."""
LONGEST_PAUSE = 0.5
CONFLICTS = ("40001", "40P01")
# Errors of a server that is there and keeps its sessions.
ANSWERED = (*CONFLICTS, "55P03", "57014", "53")
# Deadlock and serialization; lock timeout; server ending or starting; connections; disk; statement
# timeout (the work is pure: all it does is in its transaction).
RETRYABLE = (*CONFLICTS, "55P03", "57P01", "57P02", "57P03", "57014", "53", "25P03", "08")

_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE_SECONDS)


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Let transactions of this block wait up to `seconds` for a database that is away."""
    reset = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(reset)


def durably(work: Callable[[], T]) -> T:
    """Run `work` in one transaction that is committed when this returns, and return its result.

    `work` is run again as a whole, on a fresh connection, after a lost connection or a conflict
    that the database resolves by starting over (SQLSTATE classes of the PostgreSQL manual,
    appendix A); it must read what it decides by itself, and find its own earlier commit if the
    answer to COMMIT was lost. Inside a caller's transaction it runs once, as a part of it.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            return work()
    return _patiently(lambda: _committed(work))


def in_one_statement(work: Callable[[], T]) -> T:
    """Run `work`, a single statement that is its own transaction, as `durably` would."""
    return work() if connection.in_atomic_block else _patiently(work)


def _committed(work: Callable[[], T]) -> T:
    with transaction.atomic(durable=True):
        return work()


def _patiently(work: Callable[[], T]) -> T:
    until = time.monotonic() + _patience.get()
    conflicts = pause = 0.0
    while True:
        try:
            return work()
        except (DatabaseError, InterfaceError) as error:
            conflicts += sqlstate(error) in CONFLICTS
            if not is_passing(error) or conflicts >= CONFLICT_TRIES or time.monotonic() >= until:
                raise
            connection.close()
            if not sqlstate(error).startswith(ANSWERED):
                empty_pool()
        pause = min(max(pause * 2, 0.02), LONGEST_PAUSE)
        time.sleep(random.uniform(0.5, 1.0) * pause)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE that the server gave, or empty text."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")


def is_passing(error: BaseException) -> bool:
    """Say whether the same transaction may succeed when it is started again."""
    if isinstance(error, IntegrityError):
        return False
    if isinstance(error, InterfaceError):
        return True
    if state := sqlstate(error):
        return state.startswith(RETRYABLE)
    if not isinstance(error, OperationalError):
        return False  # the driver refused the values: they will not get better
    # No answer from the server: a cut connection, an empty pool; or SQLite, whose words these are.
    text = str(error).lower()
    return connection.vendor == "postgresql" or any(
        word in text for word in ("locked", "busy", "full", "disk i/o")
    )


def empty_pool() -> None:
    """Drop the idle connections of this process: where one was cut, the others seldom live.

    The pool would find that out one by one as they are asked for, and pause longer after each.
    """
    pool = getattr(connection, "pool", None)  # PostgreSQL only, where the host has one
    if pool is not None and hasattr(pool, "drain"):
        pool.drain()


def give_back_connection() -> None:
    """Return this thread's connection to the pool while it waits for something else."""
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()
