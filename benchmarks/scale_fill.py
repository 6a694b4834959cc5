"""A database as after years: one story that really happened, told a million times.

The runtime tells two stories, one of a run that ended and one of a run that waits for a person. All
their rows are then copied by the server, each copy under ids of its own: `md5(id || n)` for a UUID,
`id + n * STRIDE` for a number. Foreign keys are not checked meanwhile; the copies agree as the
originals do.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection

STRIDE = 1000  # above every number in a database with two stories
BATCH = 50_000
UUIDS = {"id", "thread_id", "run_id", "interrupt_id", "approval_id"}
NUMBERS = {"id", "tool_execution_id"}
MOMENTS = {"created_at", "queued_at", "at", "started_at", "finished_at", "answered_at"}
OWNER_COLUMNS = {"user_id", "requester_id"}
# What belongs to a thread, and by which column it does.
TABLES = {
    "agentruntime_thread": "id",
    "agentruntime_run": "thread_id",
    "agentruntime_checkpoint": "thread_id",
    "agentruntime_message": "thread_id",
    "agentruntime_toolexecution": "thread_id",
    "agentruntime_interrupt": "thread_id",
    "agentruntime_event": "thread_id",
    "approvals_approval": "thread_id",
}
COLUMNS = """
SELECT column_name, data_type FROM information_schema.columns
WHERE table_name = %s AND table_schema = current_schema()
"""
COPY = """
INSERT INTO {table} SELECT copy.* FROM {table} AS original,
generate_series(%(first)s::int, %(last)s::int) AS n,
LATERAL jsonb_populate_record(original, jsonb_build_object({changes})) AS copy
WHERE original.{owner} = %(thread)s::uuid
"""


def fill(done: uuid.UUID, waiting: uuid.UUID, runs: int, approvals: int, owners: int) -> float:
    """Copy the story of the thread `done` and that of `waiting` so often, in turn for the first
    `owners` people called owner-0 and so on; returns the seconds.
    """
    begun = time.monotonic()
    ids = owner_ids(owners)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET synchronous_commit = off")
        told = max(last_number(cursor, table) for table in TABLES) // STRIDE
        try:
            for thread, count, offset in ((done, runs, told), (waiting, approvals, told + runs)):
                for start in range(1, count + 1, BATCH):
                    last = min(start + BATCH - 1, count)
                    tell_again(cursor, thread, start + offset, last + offset, ids)
            for table in TABLES:
                move_sequence(cursor, table)
        finally:
            cursor.execute("RESET session_replication_role")
            cursor.execute("RESET synchronous_commit")
        cursor.execute("VACUUM (ANALYZE)")
    return time.monotonic() - begun


def owner_ids(count: int) -> list[int]:
    """The ids of so many people, who are made where they are missing."""
    users = get_user_model().objects
    names = [f"owner-{n}" for n in range(count)]
    there = set(users.filter(username__in=names).values_list("username", flat=True))
    users.bulk_create(users.model(username=name) for name in names if name not in there)
    return list(users.filter(username__in=names).order_by("pk").values_list("pk", flat=True))


def tell_again(cursor: Any, thread: uuid.UUID, first: int, last: int, owners: list[int]) -> None:
    """Copy all rows of one thread, for each n from `first` to `last`."""
    for table, column in TABLES.items():
        cursor.execute(COLUMNS, (table,))
        changes = ", ".join(
            f"'{name}', {change}"
            for name, kind in cursor.fetchall()
            if (change := change_of(name, kind))
        )
        statement = COPY.format(table=table, changes=changes, owner=column)
        cursor.execute(
            statement, {"first": first, "last": last, "thread": thread, "owners": owners}
        )


def change_of(name: str, kind: str) -> str:
    """The SQL of a column's value in copy `n`; empty where it is as in the original."""
    column = f"original.{name}"
    if kind == "uuid" and name in UUIDS:
        return f"md5({column}::text || n)::uuid"
    if name in NUMBERS:
        return f"{column} + n * {STRIDE}"
    if name in OWNER_COLUMNS:
        return "(%(owners)s::int[])[1 + n %% array_length(%(owners)s::int[], 1)]"
    if name in MOMENTS:  # the later the number, the later it was; none of them in the future
        return f"{column} - interval '400 days' + n * interval '30 seconds'"
    return ""


def last_number(cursor: Any, table: str) -> int:
    """The highest number that a table has given; 0 where its ids are UUIDs."""
    cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", (table,))
    (sequence,) = cursor.fetchone()
    if not sequence:
        return 0
    cursor.execute(f"SELECT last_value FROM {sequence}")
    return int(cursor.fetchone()[0])


def move_sequence(cursor: Any, table: str) -> None:
    """Have numbers given on from behind the copies."""
    cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", (table,))
    (sequence,) = cursor.fetchone()
    if sequence:
        cursor.execute(f"SELECT setval('{sequence}', max(id)) FROM {table}")
