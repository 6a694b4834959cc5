"""Leases, deadlines and notices are by the database's clock: that of a worker may be wrong."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from agentruntime.graph import ApprovalRule, tool
from agentruntime.lifecycle import recover, start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.models import DatabaseTime, Interrupt, Run
from tests.agents import agent, call


@pytest.fixture(params=[-1, 1], ids=["an hour slow", "an hour fast"])
def wrong_clock(request, monkeypatch):
    """This process's clocks are off; the database's is not."""
    now, seconds = timezone.now, time.time
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(hours=request.param))
    monkeypatch.setattr(time, "time", lambda: seconds() + 3600 * request.param)


def test_a_lease_is_held_for_as_long_as_the_database_says(wrong_clock):
    with agent([]) as name:
        run = start_run(graph=name, input="hello")
        assert recover.sweep() == [run.pk]
        claim_run(run.pk)
        soon = Run.objects.filter(
            lease_expires_at__gt=DatabaseTime(4), lease_expires_at__lt=DatabaseTime(8)
        )
        assert soon.exists()
        assert recover.sweep() == []


def test_a_question_is_told_of_and_expires_when_it_is_time(wrong_clock, drive, django_user_model):
    from django.contrib.auth.models import Permission
    from django.test import override_settings

    from approvals import due
    from approvals.decide import decide
    from approvals.models import Notice

    boss = django_user_model.objects.create_user("boss", "boss@example.com")
    boss.user_permissions.add(Permission.objects.get(codename="decide_approval"))

    @tool(approval=ApprovalRule(title="Pay", expires_in=timedelta(minutes=30)))
    def pay() -> str:
        """Pay."""
        return "paid"

    with agent([pay], [call("pay")]) as name, override_settings(APPROVALS={"MAIL": True}):
        run = drive(name)
        due.plan_due()
        assert Notice.objects.count() == 1  # at once
        recover.expire_questions()
        asked = Interrupt.objects.get(run=run)
        assert asked.status == "open"  # not before its time
        decide(approval_id=asked.approval.pk, verdict="approve", user=boss)
        assert drive(run=run).status == "completed"
