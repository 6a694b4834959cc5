"""The ledger: intent before effect, one outcome, and no second start without a reason."""

from collections.abc import Iterator
from typing import Any

from agentruntime.invariants.core import Invariant, Scope, register_invariants
from agentruntime.lifecycle.doubt import is_readable
from agentruntime.models import SETTLED, ToolExecution

ENDS = "'tool.finished', 'tool.failed', 'tool.declined'"


def unreadable_outcomes(scope: Scope) -> Iterator[tuple[Any, Any, Any]]:
    """Recorded outcomes that cannot be read back: they are no results."""
    rows = ToolExecution.objects.filter(status__in=SETTLED, thread__in=scope.threads())
    for row in rows.iterator(chunk_size=500):
        if not is_readable(row):
            yield row.thread_id, row.run_id, row.call_key


register_invariants(
    [
        Invariant(
            "one row per call",
            "A call key is unique within its thread.",
            """
            SELECT x.thread_id, NULL, x.call_key
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             GROUP BY x.thread_id, x.call_key HAVING COUNT(*) > 1
            """,
        ),
        Invariant(
            "started means attempted",
            "A call that was started has its time and its attempts, one that was not has neither.",
            """
            SELECT x.thread_id, x.run_id, x.call_key || ' is ' || x.status
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             WHERE (x.attempts = 0) <> (x.first_started_at IS NULL)
                OR x.status IN ('running', 'unknown', 'succeeded') AND x.attempts = 0
                OR x.first_started_at > x.started_at
            """,
        ),
        Invariant(
            "an outcome is whole",
            "A settled call has its time and a result or an error; an open one has no result.",
            """
            SELECT x.thread_id, x.run_id, x.call_key || ' is ' || x.status
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             WHERE x.status IN ('succeeded', 'failed', 'declined', 'cancelled')
                   AND x.finished_at IS NULL
                OR x.status IN ('failed', 'declined', 'cancelled') AND x.error IS NULL
                OR x.status IN ('pending', 'running', 'interrupted') AND x.finished_at IS NOT NULL
            """,
        ),
        Invariant(
            "an outcome can be read back",
            "What is recorded of a call can be read.",
            check=unreadable_outcomes,
        ),
        Invariant(
            "denied is never run",
            "A call that was declined, or whose question expired, was never started.",
            """
            SELECT x.thread_id, x.run_id, x.call_key || ' was started ' || x.attempts || ' times'
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             WHERE x.attempts > 0 AND (x.status = 'declined'
                OR x.status = 'cancelled' AND {x.error.code} = 'CALL_EXPIRED_001')
            """,
        ),
        Invariant(
            "completed is final",
            "A call that has its outcome is never started again.",
            f"""
            SELECT thread_id, run_id, call_key || ' started again at ' || seq
              FROM (SELECT thread_id, run_id, type, seq, call_key,
                           LAG(type) OVER (PARTITION BY run_id, call_key ORDER BY seq) AS before
                      FROM (SELECT e.thread_id, e.run_id, e.type, e.seq,
                                   {{e.data.call_key}} AS call_key
                              FROM scope JOIN agentruntime_event e ON e.thread_id = scope.id
                             WHERE e.type IN ('tool.started', 'tool.unknown', {ENDS})) AS news
                   ) AS told
             WHERE type = 'tool.started' AND before IN ({ENDS})
            """,
        ),
        Invariant(
            "no second start of a once call by itself",
            "A call of effect once starts again only when its tool's policy, its provider or a "
            "person says so.",
            """
            SELECT e.thread_id, e.run_id, x.call_key || ' attempt ' || {e.data.attempt}
              FROM scope JOIN agentruntime_event e ON e.thread_id = scope.id
              JOIN agentruntime_toolexecution x
                ON x.run_id = e.run_id AND x.call_key = {e.data.call_key}
             WHERE e.type = 'tool.started' AND x.effect = 'once'
               AND COALESCE({e.data.why}, '') = 'the same key'
            """,
        ),
        Invariant(
            "a person's retry is used once",
            "A call of effect once has at most one start per person who said so.",
            """
            SELECT x.thread_id, x.run_id, x.call_key || ' restarted ' || COUNT(*) || ' times'
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
              JOIN agentruntime_event e ON e.run_id = x.run_id
                   AND e.type = 'tool.started' AND {e.data.call_key} = x.call_key
                   AND {e.data.why} = 'a person'
             WHERE x.effect = 'once'
             GROUP BY x.id, x.thread_id, x.run_id, x.call_key
            HAVING COUNT(*) > (SELECT COUNT(*) FROM agentruntime_interrupt i
                                WHERE i.tool_execution_id = x.id AND i.kind = 'outcome'
                                  AND i.status = 'answered')
            """,
        ),
        Invariant(
            "nothing runs without a worker",
            "No call is running whose run has ended or waits for a person.",
            """
            SELECT x.thread_id, x.run_id, x.call_key || ' is running, its run is ' || r.status
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
              JOIN agentruntime_run r ON r.id = x.run_id
             WHERE x.status = 'running'
               AND r.status IN ('interrupted', 'completed', 'failed', 'stopped', 'timed_out')
            """,
        ),
    ]
)
