"""What a transaction adds to a thread that it has locked, in one statement: on PostgreSQL."""

from __future__ import annotations

import uuid

from django.db import connection

from agentruntime.models.step_statement import MOVED, ROWS, Added, numbered
from agentruntime.models.thread import Thread

COUNTERS = "RETURNING head_version, message_count, event_count"
APPEND = f"""
WITH head AS (
  {MOVED}
   WHERE id = %(thread)s::uuid {COUNTERS}
), {ROWS}
SELECT FROM head
"""
BEGIN = f"""
WITH head AS (
  INSERT INTO agentruntime_thread
    (id, user_id, tenant, title, on_busy, head_version, message_count, event_count, created_at)
  VALUES (%(thread)s::uuid, %(user)s, %(tenant)s, %(title)s, %(on_busy)s,
          %(steps)s::int, %(messages)s::int, %(events)s::int, clock_timestamp())
  {COUNTERS}
), {ROWS}
SELECT FROM head
"""


def append(thread: Thread, run_id: uuid.UUID | None, token: int, added: Added) -> None:
    """Add rows to a thread and move its counters in the database on by as many; a thread that is
    not there yet is written along with them. The caller holds its row lock.
    """
    parameters = {
        "run": None if run_id is None else str(run_id),
        "token": token,
        "thread": str(thread.pk),
        **numbered(added),
    }
    is_new = thread._state.adding
    if is_new:
        columns = ("tenant", "title", "on_busy")
        parameters |= {name: getattr(thread, name) for name in columns}
        parameters["user"] = thread.user_id
    with connection.cursor() as cursor:
        cursor.execute(BEGIN if is_new else APPEND, parameters)
    thread._state.adding = False
