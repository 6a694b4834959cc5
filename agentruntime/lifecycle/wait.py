"""Waiting for a run from the outside: for shells, tests and scripts."""

from __future__ import annotations

import time
import uuid

from agentruntime.exceptions import RunNotFound, WaitTimeout
from agentruntime.models import Run, RunStatus
from agentruntime.models.transactions import give_back_connection


def wait_for_run(run_id: uuid.UUID, timeout: float = 60.0) -> Run:
    """Return the run as soon as it has ended or waits for a person.

    Raises `WaitTimeout` after `timeout` seconds, `RunNotFound`.
    """
    until = time.monotonic() + timeout
    pause = 0.005
    while True:
        run = Run.objects.filter(pk=run_id).first()
        if run is None:
            raise RunNotFound(run=run_id)
        if run.status not in (RunStatus.QUEUED, RunStatus.RUNNING):
            return run
        if time.monotonic() >= until:
            raise WaitTimeout(run=run_id, status=run.status, seconds=timeout)
        give_back_connection()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
