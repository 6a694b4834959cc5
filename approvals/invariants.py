"""What must be true of the stored approvals; asked with the runtime's own by `verify_history`.

Whether a decision was changed afterwards is another question: `verify_decisions` answers it.
"""

from agentruntime.invariants import Invariant, register_invariants

register_invariants(
    [
        Invariant(
            "a gated question is before people",
            "Each question about a call has its approval.",
            """
            SELECT i.thread_id, i.run_id, 'question ' || i.id
              FROM scope JOIN agentruntime_interrupt i ON i.thread_id = scope.id
             WHERE i.kind = 'approval' AND NOT EXISTS (
                   SELECT 1 FROM approvals_approval a WHERE a.interrupt_id = i.id)
            """,
        ),
        Invariant(
            "an approval waits with its question",
            "An approval is pending if and only if its question is open.",
            """
            SELECT a.thread_id, a.run_id, 'approval ' || a.id || ' is ' || a.status
                   || ', its question ' || i.status
              FROM scope JOIN approvals_approval a ON a.thread_id = scope.id
              JOIN agentruntime_interrupt i ON i.id = a.interrupt_id
             WHERE (a.status = 'pending') <> (i.status = 'open')
            """,
        ),
        Invariant(
            "one decision, and it was kept to",
            "What was approved or declined has one final decision that says so, about the call as "
            "it stands; what waits, expired or was withdrawn has none.",
            """
            SELECT a.thread_id, a.run_id, 'approval ' || a.id || ' is ' || a.status || ', '
                   || COUNT(d.id) || ' decisions, ' || COUNT(agrees.id) || ' say so'
              FROM scope JOIN approvals_approval a ON a.thread_id = scope.id
              LEFT JOIN approvals_decision d ON d.approval_id = a.id AND d.is_final
              LEFT JOIN approvals_decision agrees ON agrees.id = d.id
                   AND agrees.digest = a.digest AND a.status LIKE agrees.verdict || '%%'
             WHERE a.status <> 'superseded'
             GROUP BY a.thread_id, a.run_id, a.id, a.status
            HAVING COUNT(d.id) <> COUNT(agrees.id)
                OR COUNT(d.id) <> CASE WHEN a.status IN ('approved', 'declined') THEN 1 ELSE 0 END
            """,
        ),
        Invariant(
            "the run heard what was decided",
            "The answer that the runtime has is the final decision.",
            """
            SELECT a.thread_id, a.run_id, 'approval ' || a.id || ': ' || d.verdict
              FROM scope JOIN approvals_approval a ON a.thread_id = scope.id
              JOIN approvals_decision d ON d.approval_id = a.id AND d.is_final
              JOIN agentruntime_interrupt i ON i.id = a.interrupt_id
             WHERE i.status <> 'answered'
                OR {i.answer.verdict} <> d.verdict OR {i.answer.digest} <> d.digest
            """,
        ),
        Invariant(
            "a call starts after its decision",
            "A call that was asked about starts after a final yes that was given in time.",
            """
            SELECT x.thread_id, x.run_id, x.call_key
              FROM scope JOIN agentruntime_toolexecution x ON x.thread_id = scope.id
             WHERE x.attempts > 0 AND EXISTS (
                   SELECT 1 FROM approvals_approval a WHERE a.tool_execution_id = x.id)
               AND NOT EXISTS (
                   SELECT 1 FROM approvals_approval a
                     JOIN approvals_decision d ON d.approval_id = a.id
                    WHERE a.tool_execution_id = x.id AND d.is_final AND d.verdict = 'approve'
                      AND d.at <= x.first_started_at
                      AND (a.expires_at IS NULL OR d.at <= a.expires_at))
            """,
        ),
        Invariant(
            "nobody decides alone what they asked for",
            "Whoever decided their own request was allowed to by name, and the record says so.",
            """
            SELECT a.thread_id, a.run_id, 'approval ' || a.id || ' by ' || d.by
              FROM scope JOIN approvals_approval a ON a.thread_id = scope.id
              JOIN approvals_decision d ON d.approval_id = a.id AND d.user_id = a.requester_id
             WHERE COALESCE(CAST({d.rights.own_request} AS text), '') NOT IN ('true', '1')
            """,
        ),
        Invariant(
            "as many agree as must",
            "What was approved has the voices of as many people as its rule asked for.",
            """
            SELECT a.thread_id, a.run_id, 'approval ' || a.id || ' has '
                   || COUNT(DISTINCT voice.user_id) || ' of ' || {d.rule.approvers}
              FROM scope JOIN approvals_approval a ON a.thread_id = scope.id
              JOIN approvals_decision d ON d.approval_id = a.id
                   AND d.is_final AND d.verdict = 'approve'
              JOIN approvals_decision voice ON voice.approval_id = a.id
                   AND voice.verdict = 'approve' AND voice.digest = d.digest
             GROUP BY a.thread_id, a.run_id, a.id, {d.rule.approvers}
            HAVING COUNT(DISTINCT voice.user_id) < CAST({d.rule.approvers} AS integer)
            """,
        ),
    ]
)
