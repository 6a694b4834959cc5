"""Calls whose work goes on elsewhere: asked about when they are due, ended by what comes back.

The row of such a call is `running` and says in `outside` who works on it. `retry_at` is when it is
to be asked about next. No worker has its run meanwhile: it is queued until that moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentruntime.exceptions import GraphChanged, JobOverdue
from agentruntime.graph.jobs import find_poll
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.ledger import database_now
from agentruntime.lifecycle.outcomes import Outcome, as_error, failed, succeeded
from agentruntime.models import CallStatus, ToolExecution

LOOK_AGAIN = 86_400.0
"""How soon a job is looked at that nobody is asked about and that has no deadline."""
# Errors of these are about the connection, not about the job.
NETWORK = {"aiohttp", "httpcore", "httpx", "httpx2", "requests", "urllib3"}


def is_job(row: ToolExecution) -> bool:
    """Say whether a started call goes on elsewhere."""
    return isinstance(row.outside, dict) and row.outside.get("kind") == "job"


def is_due(row: ToolExecution) -> bool:
    """Say whether somebody is to be asked about the job now."""
    assert row.outside is not None
    due = row.retry_at is None or row.retry_at <= database_now()
    return row.outside["poll"] is not None and (due or seconds_left(row) == 0)


def seconds_left(row: ToolExecution) -> float | None:
    """Return the seconds until the job's deadline, 0 if it has passed; None if it has none."""
    assert row.outside is not None
    if row.outside["until"] is None:
        return None
    until = datetime.fromisoformat(row.outside["until"])
    return max((until - database_now()).total_seconds(), 0.0)


def seconds_to_wait(row: ToolExecution) -> float:
    """Return after how many seconds there is something to do about the job."""
    waits = [LOOK_AGAIN]
    if row.outside and row.outside["poll"] is not None and row.retry_at is not None:
        waits.append(max((row.retry_at - database_now()).total_seconds(), 0.0))
    left = seconds_left(row)
    return min(waits if left is None else [*waits, left])


def overdue(row: ToolExecution, said: str = "") -> Outcome:
    """Return the outcome of a job whose deadline has passed; `said` is the last problem."""
    words = f" (asking about it failed: {readable(said, 300)})" if said else ""
    return Outcome(CallStatus.FAILED, error=as_error(JobOverdue(tool=row.tool, said=words)))


def question_for(row: ToolExecution) -> Any:
    """Return the function that is asked about the job. Raises `GraphChanged` if it is gone."""
    assert row.outside is not None
    poll = find_poll(row.outside["poll"])
    if poll is None:
        raise GraphChanged(reason=f"{row.outside['poll']!r}, which asks about a job, is gone")
    return poll


def read_answer(row: ToolExecution, tool: Tool, kind: Any, said: Any) -> Outcome | str | None:
    """Return what an answer about a job means: an outcome, a problem in words, or not yet."""
    if said is None:
        return None
    if isinstance(said, Exception):
        if isinstance(said, OSError) or type(said).__module__.partition(".")[0] in NETWORK:
            return f"{type(said).__name__}: {said}"
        return failed(said, row.arguments)
    return succeeded(tool, kind, said)
