"""A step in one statement: the hot path on PostgreSQL.

One round trip, one flush of the log. It does what `lifecycle.step` does with the ORM elsewhere, in
the same lock order: hold the run by its fencing token, move the thread's head from the version that
the writer knows, and insert what the step adds, numbered by the counters that the update returns.
If the token or the version does not match, nothing is written and nothing is returned.

The last steps of a run end it in the same statement, unless it still asks something or is to stop.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection

from agentruntime.models.rows import columns_of, read_row
from agentruntime.models.run import Lease, Run

# What all writes to a thread have in common: `head` moves its counters on and returns them, and the
# rows that are added are numbered by them.
ROWS = """checkpoint AS (
  INSERT INTO agentruntime_checkpoint
    (thread_id, version, run_id, fencing_token, node, next_node, state, message_count, created_at)
  SELECT %(thread)s::uuid, head.head_version - %(steps)s::int + n, %(run)s::uuid,
         %(token)s::bigint, node, next_node, state,
         head.message_count - %(messages)s::int + messages, clock_timestamp()
    FROM head, jsonb_to_recordset(%(checkpoint_rows)s::jsonb)
      AS row (n int, node text, next_node text, state jsonb, messages int)
), message AS (
  INSERT INTO agentruntime_message
    (id, thread_id, ordinal, version, role, content, tool_calls, tool_call_id, extra, created_at)
  SELECT id, %(thread)s::uuid, head.message_count - %(messages)s::int + n,
         head.head_version - %(steps)s::int + step, role, content, tool_calls, tool_call_id, extra,
         clock_timestamp()
    FROM head, jsonb_to_recordset(%(message_rows)s::jsonb)
      AS row (n int, step int, id uuid, role text, content text, tool_calls jsonb,
              tool_call_id text, extra jsonb)
), event AS (
  INSERT INTO agentruntime_event (thread_id, run_id, seq, type, data, at)
  SELECT %(thread)s::uuid, %(run)s::uuid, head.event_count - %(events)s::int + n, type, data,
         clock_timestamp()
    FROM head, jsonb_to_recordset(%(event_rows)s::jsonb) AS row (n int, type text, data jsonb)
)"""
MOVED = """UPDATE agentruntime_thread
     SET head_version = head_version + %(steps)s::int,
         message_count = message_count + %(messages)s::int,
         event_count = event_count + %(events)s::int"""
STATEMENT = f"""
WITH held AS (
  SELECT id, attempts FROM agentruntime_run
   WHERE id = %(run)s::uuid AND fencing_token = %(token)s::bigint AND status = 'running'
         {{only}}
     FOR NO KEY UPDATE
), head AS (
  {MOVED}
    FROM held
   WHERE agentruntime_thread.id = %(thread)s::uuid AND head_version = %(expected)s::int
  RETURNING head_version, message_count, event_count
), progress AS (
  {{progress}}
), {ROWS}
SELECT head_version, message_count, event_count {{returned}}
"""
GOES_ON = STATEMENT.format(
    only="",
    progress="""UPDATE agentruntime_run SET attempts = 0 FROM held, head
   WHERE agentruntime_run.id = held.id AND held.attempts <> 0""",
    returned="FROM head",
)
ENDS = STATEMENT.format(
    only="""AND stop_requested_at IS NULL
         AND NOT EXISTS (SELECT FROM agentruntime_interrupt
                          WHERE run_id = %(run)s::uuid AND status = 'open')""",
    progress="""UPDATE agentruntime_run
     SET status = 'completed', finished_at = clock_timestamp(), wake_at = NULL,
         lease_expires_at = NULL, lease_owner = '', stop_requested_at = NULL
    FROM held, head WHERE agentruntime_run.id = held.id
  RETURNING agentruntime_run.*""",
    returned=f""",
       EXISTS (SELECT FROM agentruntime_run AS other WHERE other.thread_id = progress.thread_id
                  AND other.status = 'queued' AND other.is_in_line),
       EXISTS (SELECT FROM agentruntime_interrupt WHERE run_id = %(run)s::uuid),
       {columns_of(Run, "progress")}
  FROM head, progress""",
)


class Counters(NamedTuple):
    """A thread's counters after a write."""

    head_version: int
    message_count: int
    event_count: int


def is_supported() -> bool:
    """Say whether this database takes the statement."""
    return connection.vendor == "postgresql"


@dataclass(frozen=True)
class Added:
    """What some steps add to their thread, as JSON-like rows.

    `checkpoints` are {node, next_node, state, messages}, where `messages` says how many of the
    messages they have behind them; `messages` are {step, id, role, content, tool_calls,
    tool_call_id, extra}, `step` the number of their checkpoint from 1; `events` {type, data}.
    """

    checkpoints: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]


def write_steps(lease: Lease, expected: int, added: Added) -> Counters | None:
    """Append to a thread for the holder of `lease`; return its counters, or None if refused."""
    row = _execute(GOES_ON, lease, expected, added)
    return Counters(*row) if row else None


def write_last_steps(lease: Lease, expected: int, added: Added) -> tuple[Counters, Run] | None:
    """Append to a thread and complete the run; return the counters and the run, or None."""
    row = _execute(ENDS, lease, expected, added)
    if row is None:
        return None
    run = read_row(Run, iter(row[5:]))
    run.is_followed, run.has_asked = row[3:5]
    return Counters(*row[:3]), run


def _execute(statement: str, lease: Lease, expected: int, added: Added) -> Any:
    parameters = {
        "run": str(lease.run_id),
        "token": lease.fencing_token,
        "thread": str(lease.thread_id),
        "expected": expected,
        **numbered(added),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()


def numbered(added: Added) -> dict[str, Any]:
    """Return what is added as the parameters that `ROWS` and `MOVED` want."""
    return {
        "steps": len(added.checkpoints),
        "messages": len(added.messages),
        "events": len(added.events),
        "checkpoint_rows": _as_json(added.checkpoints),
        "message_rows": _as_json(added.messages),
        "event_rows": _as_json(added.events),
    }


def _as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([{"n": n, **row} for n, row in enumerate(rows, 1)], default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")
