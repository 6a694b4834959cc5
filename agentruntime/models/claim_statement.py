"""A claim in one statement: the hot path on PostgreSQL.

One round trip, in the lock order of all writes: the run if it is free, then its thread. It takes
nothing and returns nothing where the run is not to be had, where its claims are used up, or where
the thread's head is moved at this very moment; what it is then, `lifecycle.claim` finds out.
"""

from __future__ import annotations

import json
import uuid
from typing import NamedTuple

from django.db import connection

from agentruntime.graph.messages import Message as MessageValue
from agentruntime.models.checkpoint import Checkpoint
from agentruntime.models.message import Message
from agentruntime.models.rows import columns_of, read_row
from agentruntime.models.run import Run
from agentruntime.models.thread import Thread

COLUMNS = ", ".join(
    (columns_of(Run, "run"), columns_of(Thread, "thread"), columns_of(Checkpoint, "head"))
)
NEWEST = 8
"""How many messages come along at most: an input seldom has more."""
MESSAGE = ", ".join(f"message.{name}" for name in Message.VALUE_COLUMNS)
STATEMENT = f"""
WITH free AS (
  SELECT id, thread_id, status AS was, started_at AS begun_at FROM agentruntime_run
   WHERE id = %(run)s::uuid AND NOT is_in_line AND attempts < %(claims)s::int
     AND (status = 'queued' AND (wake_at IS NULL OR wake_at <= clock_timestamp())
          OR status = 'running' AND lease_expires_at < clock_timestamp())
     FOR UPDATE SKIP LOCKED
), locked AS (
  SELECT thread.id, thread.head_version FROM agentruntime_thread AS thread, free
   WHERE thread.id = free.thread_id FOR UPDATE OF thread
), head AS (
  SELECT checkpoint.* FROM agentruntime_checkpoint AS checkpoint, locked
   WHERE checkpoint.thread_id = locked.id AND checkpoint.version = locked.head_version
), run AS (
  UPDATE agentruntime_run AS run
     SET status = 'running', fencing_token = run.fencing_token + 1, lease_owner = %(owner)s,
         lease_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8),
         attempts = run.attempts + 1, wake_at = NULL,
         started_at = coalesce(run.started_at, clock_timestamp())
    FROM free, head WHERE run.id = free.id
  RETURNING run.*, free.was, free.begun_at
), thread AS (
  UPDATE agentruntime_thread AS thread SET event_count = thread.event_count + 2
    FROM run WHERE thread.id = run.thread_id
  RETURNING thread.*
), event AS (
  INSERT INTO agentruntime_event (thread_id, run_id, seq, type, data, at)
  SELECT thread.id, run.id, thread.event_count - 1,
         CASE WHEN run.begun_at IS NULL THEN 'run.started' ELSE 'run.resumed' END,
         jsonb_build_object('attempt', run.attempts, 'recovered', run.was = 'running'),
         clock_timestamp()
    FROM run, thread
   UNION ALL
  SELECT thread.id, run.id, thread.event_count, 'node.started',
         jsonb_build_object('node', head.next_node), clock_timestamp()
    FROM run, thread, head
)
SELECT run.begun_at IS NULL, run.was = 'running',
       (SELECT jsonb_agg(jsonb_build_array({MESSAGE}) ORDER BY ordinal)
          FROM agentruntime_message AS message
         WHERE message.thread_id = thread.id AND version = head.version
           AND ordinal > thread.message_count - {NEWEST})::text,
       {COLUMNS}
  FROM run, thread, head
"""


class Claimed(NamedTuple):
    """A run that was claimed: its row and those of its thread and head, whether it was never
    claimed before, whether it was taken from a worker that is gone, and the newest messages that
    came with the head."""

    run: Run
    thread: Thread
    head: Checkpoint
    is_first: bool
    was_lapsed: bool
    newest: list[MessageValue]


def claim_at_once(run_id: uuid.UUID, owner: str, seconds: float, claims: int) -> Claimed | None:
    """Take the run for `owner` for so many seconds, unless it had `claims` claims in vain."""
    parameters = {"run": str(run_id), "owner": owner, "seconds": seconds, "claims": claims}
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, parameters)
        row = cursor.fetchone()
    if row is None:
        return None
    is_first, was_lapsed, newest, *values = row
    found = iter(values)
    run, thread, head = (read_row(model, found) for model in (Run, Thread, Checkpoint))
    return Claimed(run, thread, head, is_first, was_lapsed, _messages(newest))


def _messages(text: str | None) -> list[MessageValue]:
    """The messages of a column, or none where it cannot be read: they are looked up then."""
    try:
        return [Message.value_of(*columns) for columns in json.loads(text or "[]")]
    except (ValueError, TypeError, RecursionError):
        return []
