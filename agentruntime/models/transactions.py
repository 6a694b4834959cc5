"""Transactions that survive what databases do: lost connections, deadlocks, full disks for a
moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, IntegrityError, InterfaceError, connection, transaction

T = TypeVar("T")

TRIES = 5
RETRYABLE = ("40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300", "53100", "25P03", "08")


def durably(work: Callable[[], T], tries: int = TRIES) -> T:
    """Run `work` in one transaction that is committed when this returns, and return its result.

    `work` is run again as a whole, on a fresh connection, after a lost connection or a conflict
    that the database resolves by starting over (SQLSTATE classes of the PostgreSQL manual,
    appendix A); it must read what it decides by itself, and find its own earlier commit if the
    answer to COMMIT was lost. Inside a caller's transaction it runs once, as a part of it.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            return work()
    for attempt in range(1, tries + 1):
        try:
            with transaction.atomic(durable=True):
                return work()
        except (DatabaseError, InterfaceError) as error:
            if attempt == tries or not is_passing(error):
                raise
            connection.close()
            time.sleep(random.uniform(0.5, 1.0) * 0.02 * 4**attempt)
    raise AssertionError("unreachable")


def is_passing(error: Exception) -> bool:
    """Say whether the same transaction may succeed when it is started again."""
    if isinstance(error, IntegrityError):
        return False
    if isinstance(error, InterfaceError):
        return True
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None)
    if (
        state is None
    ):  # no answer from the server: a cut connection; or SQLite, whose words these are
        text = str(error).lower()
        return connection.vendor == "postgresql" or "locked" in text or "busy" in text
    return str(state).startswith(RETRYABLE)


def give_back_connection() -> None:
    """Return this thread's connection to the pool while it waits for something else."""
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()
