"""Threads, checkpoints, messages, events: numbered without holes, written by who held the lease."""

from agentruntime.invariants.core import Invariant, register_invariants

register_invariants(
    [
        Invariant(
            "checkpoints are 1..n",
            "The versions of a thread are 1 to its head, each once.",
            """
            SELECT t.id, NULL, 'head ' || t.head_version || ', versions ' || COUNT(c.version)
                   || ', newest ' || COALESCE(MAX(c.version), 0)
              FROM scope JOIN agentruntime_thread t ON t.id = scope.id
              LEFT JOIN agentruntime_checkpoint c ON c.thread_id = t.id
             GROUP BY t.id, t.head_version
            HAVING COUNT(c.version) <> t.head_version
                OR COUNT(DISTINCT c.version) <> t.head_version
                OR COALESCE(MAX(c.version), 0) <> t.head_version
            """,
        ),
        Invariant(
            "messages are 1..m",
            "The messages of a thread are numbered 1 to m without holes.",
            """
            SELECT t.id, NULL, 'counted ' || t.message_count || ', there ' || COUNT(m.ordinal)
                   || ', last ' || COALESCE(MAX(m.ordinal), 0)
              FROM scope JOIN agentruntime_thread t ON t.id = scope.id
              LEFT JOIN agentruntime_message m ON m.thread_id = t.id
             GROUP BY t.id, t.message_count
            HAVING COUNT(m.ordinal) <> t.message_count
                OR COUNT(DISTINCT m.ordinal) <> t.message_count
                OR COALESCE(MAX(m.ordinal), 0) <> t.message_count
            """,
        ),
        Invariant(
            "events have no holes",
            "The events of a thread that are kept are numbered without holes up to its count.",
            """
            SELECT t.id, NULL, 'counted ' || t.event_count || ', there ' || COUNT(e.seq)
                   || ', from ' || MIN(e.seq) || ' to ' || MAX(e.seq)
              FROM scope JOIN agentruntime_thread t ON t.id = scope.id
              JOIN agentruntime_event e ON e.thread_id = t.id
             GROUP BY t.id, t.event_count
            HAVING MAX(e.seq) <> t.event_count OR COUNT(e.seq) <> MAX(e.seq) - MIN(e.seq) + 1
                OR COUNT(DISTINCT e.seq) <> COUNT(e.seq)
            """,
        ),
        Invariant(
            "no message without its checkpoint",
            "A message came with a checkpoint of its thread, which counts it.",
            """
            SELECT m.thread_id, c.run_id, 'message ' || m.ordinal || ' of version ' || m.version
              FROM scope JOIN agentruntime_message m ON m.thread_id = scope.id
              LEFT JOIN agentruntime_checkpoint c
                ON c.thread_id = m.thread_id AND c.version = m.version
              LEFT JOIN agentruntime_checkpoint before
                ON before.thread_id = m.thread_id AND before.version = m.version - 1
             WHERE c.id IS NULL OR m.ordinal > c.message_count
                OR m.ordinal <= COALESCE(before.message_count, 0)
            """,
        ),
        Invariant(
            "tokens never fall",
            "Along the versions of a run the fencing token never gets smaller: who was fenced out "
            "commits nothing.",
            """
            SELECT thread_id, run_id, 'version ' || version || ' has token ' || fencing_token
                   || ' after ' || earlier
              FROM (SELECT c.thread_id, c.run_id, c.version, c.fencing_token,
                           MAX(c.fencing_token) OVER (
                             PARTITION BY c.run_id ORDER BY c.version
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
                      FROM scope JOIN agentruntime_checkpoint c ON c.thread_id = scope.id) AS chain
             WHERE fencing_token <> 0 AND fencing_token < earlier
            """,
        ),
        Invariant(
            "no token from the future",
            "No checkpoint, branch or call has a fencing token that its run never gave out.",
            """
            SELECT r.thread_id, r.id, 'token ' || written.fencing_token || ' above '
                   || r.fencing_token
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
              JOIN (SELECT run_id, fencing_token FROM agentruntime_checkpoint
                    UNION SELECT run_id, fencing_token FROM agentruntime_toolexecution
                    UNION SELECT run_id, fencing_token FROM agentruntime_branchstep) AS written
                ON written.run_id = r.id
             WHERE written.fencing_token > r.fencing_token
            """,
        ),
        Invariant(
            "rows stay in their thread",
            "Whatever belongs to a run belongs to the thread of that run.",
            """
            SELECT r.thread_id, r.id, belongs.kind || ' of thread ' || belongs.thread_id
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
              JOIN (SELECT 'checkpoint' AS kind, run_id, thread_id FROM agentruntime_checkpoint
                    UNION ALL SELECT 'call', run_id, thread_id FROM agentruntime_toolexecution
                    UNION ALL SELECT 'branch', run_id, thread_id FROM agentruntime_branchstep
                    UNION ALL SELECT 'question', run_id, thread_id FROM agentruntime_interrupt
                    UNION ALL SELECT 'event', run_id, thread_id FROM agentruntime_event) AS belongs
                ON belongs.run_id = r.id
             WHERE belongs.thread_id <> r.thread_id
            """,
        ),
    ]
)
