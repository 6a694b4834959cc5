"""The intents of a turn's calls, in one statement: the hot path on PostgreSQL.

In the lock order of all writes: the run by its fencing token, then its thread. Nothing is written
and nothing returned where the token is gone or the run is to stop; what it is then,
`lifecycle.look` finds out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connection

from agentruntime.models.run import Lease
from agentruntime.models.step_statement import MOVED, ROWS, Added, numbered

STATEMENT = f"""
WITH held AS (
  SELECT id, attempts FROM agentruntime_run
   WHERE id = %(run)s::uuid AND fencing_token = %(token)s::bigint AND status = 'running'
     AND stop_requested_at IS NULL
     FOR NO KEY UPDATE
), head AS (
  {MOVED}
    FROM held
   WHERE agentruntime_thread.id = %(thread)s::uuid
  RETURNING head_version, message_count, event_count
), progress AS (
  UPDATE agentruntime_run SET attempts = 0 FROM held, head
   WHERE agentruntime_run.id = held.id AND held.attempts <> 0
), call AS (
  INSERT INTO agentruntime_toolexecution
    (thread_id, run_id, call_key, kind, tool_call_id, node, version, tool, tool_fingerprint, effect,
     status, arguments, state_update, error, is_gated, attempts, forgiven_attempts, fencing_token,
     first_started_at, started_at, finished_at, created_at)
  SELECT %(thread)s::uuid, %(run)s::uuid, call_key, 'call', tool_call_id, node, version, tool,
         tool_fingerprint, effect, status, arguments, '{{}}', error, false, attempts, 0,
         fencing_token, at.started, at.started, at.finished, clock_timestamp()
    FROM head, jsonb_to_recordset(%(calls)s::jsonb)
      AS row (call_key text, tool_call_id text, node text, version int, tool text,
              tool_fingerprint text, effect text, status text, arguments jsonb, error jsonb,
              attempts int, fencing_token bigint),
         LATERAL (SELECT CASE WHEN status = 'running' THEN clock_timestamp() END AS started,
                         CASE WHEN status = 'failed' THEN clock_timestamp() END AS finished) AS at
  RETURNING id, call_key
), {ROWS}
SELECT event_count, call_key, call.id FROM head, call
"""
COLUMNS = (
    "call_key", "tool_call_id", "node", "version", "tool", "tool_fingerprint", "effect", "status",
    "arguments", "error", "attempts", "fencing_token",
)  # fmt: skip


class Inserted(NamedTuple):
    """The ids of new calls by key, and the thread's count of events after them."""

    ids: dict[str, int]
    event_count: int


def write_intents(
    lease: Lease, calls: Sequence[Any], events: Sequence[Mapping[str, Any]]
) -> Inserted | None:
    """Insert calls that are running or failed, with their news, for the holder of `lease`.

    `calls` have the attributes `COLUMNS`; events are {type, data}. None if refused; a key that is
    there already raises `IntegrityError`.
    """
    parameters = {
        "run": str(lease.run_id),
        "token": lease.fencing_token,
        "thread": str(lease.thread_id),
        "calls": json.dumps([{name: getattr(one, name) for name in COLUMNS} for one in calls]),
        **numbered(Added([], [], events)),
    }
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, parameters)
        rows = cursor.fetchall()
    return Inserted({key: ident for _, key, ident in rows}, rows[0][0]) if rows else None
