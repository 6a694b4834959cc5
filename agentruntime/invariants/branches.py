"""Branches: lines of steps without holes, written by who held the lease, each opened somewhere."""

from agentruntime.invariants.core import Invariant, register_invariants

register_invariants(
    [
        Invariant(
            "branch steps are 0..n",
            "A branch has its beginning and its steps, numbered without holes.",
            """
            SELECT b.thread_id, MAX(CAST(b.run_id AS text)), b.opened_at || '/' || b."index" || ': '
                   || COUNT(*) || ' steps, last ' || MAX(b.number)
              FROM scope JOIN agentruntime_branchstep b ON b.thread_id = scope.id
             GROUP BY b.thread_id, b.opened_at, b."index"
            HAVING MIN(b.number) <> 0 OR MAX(b.number) <> COUNT(*) - 1
            """,
        ),
        Invariant(
            "branches of a fork are 0..k",
            "The branches that were opened at one place are numbered without holes.",
            """
            SELECT b.thread_id, MAX(CAST(b.run_id AS text)), b.opened_at || ': '
                   || COUNT(*) || ' branches, last ' || MAX(b."index")
              FROM scope JOIN agentruntime_branchstep b ON b.thread_id = scope.id
             WHERE b.number = 0
             GROUP BY b.thread_id, b.opened_at
            HAVING MIN(b."index") <> 0 OR MAX(b."index") <> COUNT(*) - 1
            """,
        ),
        Invariant(
            "no branch without its opening",
            "A branch was opened by a version of its thread, by a step of another branch, or by a "
            "call.",
            """
            SELECT b.thread_id, b.run_id, b.opened_at || '/' || b."index"
              FROM scope JOIN agentruntime_branchstep b ON b.thread_id = scope.id
             WHERE b.number = 0
               AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_checkpoint c
                    WHERE c.thread_id = b.thread_id AND CAST(c.version AS text) = b.opened_at)
               AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_branchstep o
                    WHERE o.thread_id = b.thread_id
                      AND o.opened_at || '/' || o."index" || '.' || o.number = b.opened_at)
               AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_toolexecution x
                    WHERE x.thread_id = b.thread_id AND x.call_key = b.opened_at)
            """,
        ),
        Invariant(
            "tokens of a branch never fall",
            "Along the steps of a branch the fencing token never gets smaller.",
            """
            SELECT thread_id, run_id, opened_at || '.' || number || ' has token ' || fencing_token
                   || ' after ' || earlier
              FROM (SELECT b.thread_id, b.run_id, b.opened_at, b.number, b.fencing_token,
                           LAG(b.fencing_token) OVER (
                             PARTITION BY b.thread_id, b.opened_at, b."index"
                             ORDER BY b.number) AS earlier
                      FROM scope JOIN agentruntime_branchstep b ON b.thread_id = scope.id) AS line
             WHERE fencing_token < earlier
            """,
        ),
        Invariant(
            "steps of branches are counted",
            "A run has as many steps in branches as its limit of steps was held against.",
            """
            SELECT r.thread_id, r.id, 'counted ' || r.branched_steps || ', there ' || COUNT(b.id)
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
              LEFT JOIN agentruntime_branchstep b ON b.run_id = r.id
                   AND b.thread_id = r.thread_id AND b.number > 0
             GROUP BY r.thread_id, r.id, r.branched_steps
            HAVING COUNT(b.id) <> r.branched_steps
            """,
        ),
        Invariant(
            "branches end before they are joined",
            "The step that joins the branches of a version comes when all are at their end.",
            """
            SELECT b.thread_id, b.run_id, b.opened_at || '/' || b."index" || ' is at '
                   || b.next_node
              FROM scope JOIN agentruntime_branchstep b ON b.thread_id = scope.id
              JOIN agentruntime_branchstep first ON first.thread_id = b.thread_id
                   AND first.opened_at = b.opened_at AND first."index" = b."index"
                   AND first.number = 0
              JOIN agentruntime_checkpoint c ON c.thread_id = b.thread_id
                   AND c.version = b.version AND CAST(c.version AS text) = b.opened_at
              JOIN agentruntime_checkpoint joined ON joined.thread_id = c.thread_id
                   AND joined.version = c.version + 1 AND joined.node = c.next_node
             WHERE b.next_node NOT IN ('__end__', {first.result.until}) AND NOT EXISTS (
                   SELECT 1 FROM agentruntime_branchstep later
                    WHERE later.thread_id = b.thread_id AND later.opened_at = b.opened_at
                      AND later."index" = b."index" AND later.number > b.number)
            """,
        ),
    ]
)
