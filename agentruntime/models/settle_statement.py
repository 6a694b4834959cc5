"""The outcomes of calls that returned together, in one statement: the hot path on PostgreSQL.

In the lock order of all writes to a ledger: the thread, then the rows of its calls. Nothing is
written where one of the calls is not as the caller knows it (another attempt, another worker, an
outcome already): `lifecycle.recording` then takes them one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from agentruntime.models.run import Lease
from agentruntime.models.step_statement import MOVED, ROWS, Added, numbered

STATEMENT = f"""
WITH thread AS (
  SELECT id FROM agentruntime_thread WHERE id = %(thread)s::uuid FOR UPDATE
), outcome AS (
  SELECT call.id, row.* FROM thread, agentruntime_toolexecution AS call
    JOIN jsonb_to_recordset(%(calls)s::jsonb)
      AS row (call bigint, attempts int, status text, result jsonb, state_update jsonb, error jsonb)
      ON call.id = row.call AND call.attempts = row.attempts
   WHERE call.fencing_token = %(token)s::bigint AND call.status = 'running'
     FOR UPDATE OF call
), head AS (
  {MOVED}
   WHERE id = %(thread)s::uuid AND (SELECT count(*) FROM outcome) = %(events)s::int
  RETURNING head_version, message_count, event_count
), call AS (
  UPDATE agentruntime_toolexecution AS call
     SET status = outcome.status, result = outcome.result, state_update = outcome.state_update,
         error = outcome.error, finished_at = clock_timestamp()
    FROM outcome, head WHERE call.id = outcome.id
), {ROWS}
SELECT event_count FROM head
"""


def settle_calls(
    lease: Lease, calls: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> int | None:
    """Write the outcomes of running calls that this lease started, and one event for each.

    `calls` are {call, attempts, status, result, state_update, error}, `call` the id; events are
    {type, data}. Returns the thread's count of events after them, or None if nothing was written.
    """
    parameters = {
        "run": str(lease.run_id),
        "token": lease.fencing_token,
        "thread": str(lease.thread_id),
        "calls": json.dumps(calls),
        **numbered(Added([], [], events)),
    }
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, parameters)
        row = cursor.fetchone()
    return row[0] if row else None
