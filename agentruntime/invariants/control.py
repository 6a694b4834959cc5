"""Runs: legal moves, one lease, ends that are ends, nothing that waits for ever."""

from collections.abc import Iterator
from typing import Any

from django.db.models import F, Q

from agentruntime.conf import runtime_settings
from agentruntime.invariants.core import Invariant, Scope, register_invariants
from agentruntime.models import DatabaseTime, Run, RunStatus

WORK = "'node.started', 'node.finished', 'tool.started'"
# What an ended run may still hear: the late end of a call, what becomes of its approvals.
LAST_WORD = "'run.completed', 'run.stopped', 'run.failed', 'run.timed_out'"


def forgotten_runs(scope: Scope) -> Iterator[tuple[Any, Any, Any]]:
    """Runs that nobody works on although they are due, for longer than any recovery takes."""
    conf = runtime_settings()
    patience = conf.LEASE_SECONDS + 2 * conf.SWEEP_SECONDS + conf.GRACE_SECONDS + 60
    long_ago = DatabaseTime(-patience)
    queued = Q(status=RunStatus.QUEUED, is_in_line=False, queued_at__lt=long_ago) & (
        Q(wake_at=None) | Q(wake_at__lt=long_ago)
    )
    lapsed = Q(status=RunStatus.RUNNING, lease_expires_at__lt=long_ago)
    found = Run.objects.filter(queued | lapsed, thread__in=scope.threads())
    for run in found.iterator():
        yield run.thread_id, run.pk, f"{run.status} since {run.queued_at:%Y-%m-%d %H:%M:%S}"


def poisoned_runs(scope: Scope) -> Iterator[tuple[Any, Any, Any]]:
    """Runs that were claimed more often than they may be without a commit."""
    found = Run.objects.filter(
        attempts__gt=runtime_settings().MAX_CLAIMS, thread__in=scope.threads()
    )
    yield from found.values_list("thread_id", "id", F("attempts")).iterator()


register_invariants(
    [
        Invariant(
            "one active run per thread",
            "At most one run of a thread works or waits (runs in line aside).",
            """
            SELECT r.thread_id, NULL, COUNT(*) || ' active runs'
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
             WHERE r.status IN ('queued', 'running', 'interrupted') AND NOT r.is_in_line
             GROUP BY r.thread_id HAVING COUNT(*) > 1
            """,
        ),
        Invariant(
            "running means leased",
            "A run has a lease if and only if it is running.",
            """
            SELECT r.thread_id, r.id, r.status
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
             WHERE (r.status = 'running') <> (r.lease_expires_at IS NOT NULL)
                OR (r.status <> 'running' AND r.lease_owner <> '')
            """,
        ),
        Invariant(
            "the last event tells the status",
            "The newest event about a run as a whole agrees with its row.",
            """
            SELECT thread_id, run_id, status || ' after ' || type
              FROM (SELECT r.thread_id, r.id AS run_id, r.status, e.type,
                           ROW_NUMBER() OVER (PARTITION BY r.id ORDER BY e.seq DESC) AS nth
                      FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
                      JOIN agentruntime_event e ON e.run_id = r.id AND e.type LIKE 'run.%%'
                   ) AS told
             WHERE nth = 1 AND NOT (
                   type = 'run.' || status
                OR status = 'running' AND type IN ('run.started', 'run.resumed')
                OR status = 'queued' AND type IN ('run.started', 'run.resumed', 'run.interrupted'))
            """,
        ),
        Invariant(
            "one end",
            "A run ends once; only a retry by an operator comes after its failure.",
            f"""
            SELECT thread_id, run_id, type || ' after ' || before
              FROM (SELECT e.thread_id, e.run_id, e.type,
                           LAG(e.type) OVER (PARTITION BY e.run_id ORDER BY e.seq) AS before
                      FROM scope JOIN agentruntime_event e ON e.thread_id = scope.id
                     WHERE e.type LIKE 'run.%%') AS told
             WHERE before IN ({LAST_WORD})
               AND NOT (type = 'run.queued' AND before IN ('run.failed', 'run.timed_out'))
            """,
        ),
        Invariant(
            "no work after the end, none while waiting",
            "Between a pause and the next claim, and after the end, a run does nothing (the stop "
            "of a waiting run adds what its calls came to).",
            f"""
            SELECT thread_id, run_id, type || ' at ' || seq || ' after ' || whole
              FROM (SELECT thread_id, run_id, type, seq,
                           FIRST_VALUE(type) OVER (
                             PARTITION BY run_id, moves ORDER BY seq) AS whole
                      FROM (SELECT e.thread_id, e.run_id, e.type, e.seq,
                                   SUM(CASE WHEN e.type LIKE 'run.%%' THEN 1 ELSE 0 END) OVER (
                                     PARTITION BY e.run_id ORDER BY e.seq) AS moves
                              FROM scope JOIN agentruntime_event e ON e.thread_id = scope.id
                             WHERE e.run_id IS NOT NULL) AS counted) AS told
             WHERE whole IN ({LAST_WORD}) AND type IN ({WORK}, 'message.added')
                OR whole = 'run.interrupted' AND type IN ({WORK})
            """,
        ),
        Invariant(
            "stop stops",
            "No call starts after a stop request is committed.",
            """
            SELECT r.thread_id, r.id, x.call_key || ' started at ' || x.started_at
              FROM scope JOIN agentruntime_run r ON r.thread_id = scope.id
              JOIN agentruntime_toolexecution x ON x.run_id = r.id
             WHERE r.status = 'stopped' AND x.started_at > r.stop_requested_at
            """,
        ),
        Invariant(
            "nothing is lost",
            "Every run that is due is taken up within the time a recovery takes.",
            check=forgotten_runs,
        ),
        Invariant(
            "poison ends",
            "A run that kills its workers is parked after a few claims.",
            check=poisoned_runs,
        ),
    ]
)
