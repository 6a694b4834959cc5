"""The outcomes of calls that returned together, in one statement: the hot path on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db import connection

STATEMENT = """
UPDATE agentruntime_toolexecution
   SET status = row.status, result = row.result, state_update = row.state_update,
       error = row.error, finished_at = clock_timestamp()
  FROM jsonb_to_recordset(%(rows)s::jsonb)
    AS row (id bigint, attempts int, status text, result jsonb, state_update jsonb, error jsonb)
 WHERE agentruntime_toolexecution.id = row.id
   AND agentruntime_toolexecution.attempts = row.attempts
   AND agentruntime_toolexecution.fencing_token = %(token)s::bigint
   AND agentruntime_toolexecution.status = 'running'
RETURNING agentruntime_toolexecution.id
"""


def settle_calls(token: int, rows: Sequence[dict[str, Any]]) -> set[int]:
    """Write the outcomes of running calls that this token started; return the ids it was done for.

    `rows` are {id, attempts, status, result, state_update, error}. A call that is not as the caller
    knows it (another attempt, another worker, an outcome already) is left alone.
    """
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, {"rows": json.dumps(rows), "token": token})
        return {ident for (ident,) in cursor.fetchall()}
