"""Runs that are worked off claim by claim, here or in processes that end after each."""

import subprocess
import sys

import pytest

from tests.lifecycle.conftest import _by_hand, drive, look  # noqa: F401
from tests.processes import ROOT
from tests.promises.conftest import told  # noqa: F401
from tests.tools import farm


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The farm's folder; its agents are known for the length of the test."""
    from agentruntime.graph.registry import unregister

    monkeypatch.setenv(farm.FOLDER, str(tmp_path))
    farm.register_agents()
    yield tmp_path
    for name in farm.agents():
        unregister(name)


@pytest.fixture
def drive_elsewhere(process_environment):
    """Do one claim of a run in a process that knows nothing but the database."""
    from agentruntime.lifecycle import start_run

    def go(graph=None, *, run=None, **options):
        run = run or start_run(graph=graph, input="go", **options)
        subprocess.run(
            [sys.executable, "-m", "tests.tools.worker", str(run.pk)],
            cwd=ROOT,
            env=process_environment(redis=False),
            check=True,
            timeout=60,
        )
        run.refresh_from_db()
        return run

    return go


@pytest.fixture
def make_due():
    """Let what a run waits for be due now, as if the time had passed."""
    from agentruntime.models import DatabaseTime, Run, ToolExecution

    def now(run, deadline=False):
        Run.objects.filter(pk=run.pk).update(wake_at=DatabaseTime(-1))
        for row in ToolExecution.objects.filter(run=run).exclude(outside=None):
            outside = {
                **row.outside,
                **({"until": "2020-01-01T00:00:00+00:00"} if deadline else {}),
            }
            row.save_fields(retry_at=DatabaseTime(-1), outside=outside)

    return now


@pytest.fixture
def decide(django_user_model):
    """Decide the one approval that a run waits for, as a member of staff who may."""
    from django.contrib.auth.models import Permission

    from approvals.decide import decide as record
    from approvals.models import Approval

    def say(run, verdict="approve", **more):
        boss, _ = django_user_model.objects.get_or_create(username="boss", is_superuser=True)
        boss.user_permissions.add(Permission.objects.get(codename="decide_approval"))
        approval = Approval.objects.get(interrupt__run=run, interrupt__status="open")
        return record(
            approval_id=approval.pk, verdict=verdict, user=boss, digest=approval.digest, **more
        )

    return say
