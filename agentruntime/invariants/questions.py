"""Questions: asked by runs that wait, answered once, and asked before what they guard."""

from agentruntime.invariants.core import Invariant, register_invariants

register_invariants(
    [
        Invariant(
            "waiting means asked",
            "A run waits for a person if and only if a question of it is open.",
            """
            SELECT r.thread_id, r.id, 'no question is open'
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
             WHERE r.status = 'interrupted' AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_interrupt i
                    WHERE i.run_id = r.id AND i.status = 'open')
            """,
        ),
        Invariant(
            "no question of an ended run",
            "What a run still asked is closed with its end.",
            """
            SELECT r.thread_id, r.id, 'question ' || i.id || ' is open, the run ' || r.status
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
              JOIN agentruntime_interrupt i ON i.run_id = r.id AND i.status = 'open'
             WHERE r.status IN ('completed', 'failed', 'stopped', 'timed_out')
            """,
        ),
        Invariant(
            "a question stands once",
            "The same question is open or answered at most once at its place.",
            """
            SELECT i.thread_id, i.run_id, i.scope
              FROM scope JOIN agentruntime_interrupt i ON i.thread_id = scope.id
             WHERE i.status IN ('open', 'answered')
             GROUP BY i.thread_id, i.run_id, i.scope, i.digest, i.occurrence HAVING COUNT(*) > 1
            """,
        ),
        Invariant(
            "an answer wakes once",
            "An answer queues its run at most once.",
            """
            SELECT e.thread_id, e.run_id, 'interrupt ' || {e.data.interrupt}
              FROM scope JOIN agentruntime_event e ON e.thread_id = scope.id
             WHERE e.type = 'run.queued' AND {e.data.interrupt} IS NOT NULL
             GROUP BY e.thread_id, e.run_id, {e.data.interrupt} HAVING COUNT(*) > 1
            """,
        ),
        Invariant(
            "unknown is asked about",
            "A run that waits has asked about each of its calls of unknown outcome.",
            """
            SELECT x.thread_id, x.run_id, x.call_key
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
              JOIN agentruntime_run r ON r.id = x.run_id AND r.status = 'interrupted'
             WHERE x.status = 'unknown' AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_interrupt i
                    WHERE i.tool_execution_id = x.id AND i.kind = 'outcome' AND i.status = 'open')
            """,
        ),
        Invariant(
            "a gated call starts with a yes",
            "A call that was asked about starts after a yes that came in time.",
            """
            SELECT x.thread_id, x.run_id, x.call_key
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             WHERE x.attempts > 0 AND EXISTS (
                   SELECT 1 FROM agentruntime_interrupt i
                    WHERE i.tool_execution_id = x.id AND i.kind = 'approval')
               AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_interrupt i
                    WHERE i.tool_execution_id = x.id AND i.kind = 'approval'
                      AND i.status = 'answered' AND {i.answer.verdict} = 'approve'
                      AND i.answered_at <= x.first_started_at
                      AND (i.expires_at IS NULL OR i.answered_at <= i.expires_at))
            """,
        ),
    ]
)
