"""Leases, deadlines and notices are by the database's clock: that of a worker may be wrong."""

import time
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from agentruntime.exceptions import LeaseLost
from agentruntime.graph import END, START, ApprovalRule, State, StateGraph, tool
from agentruntime.lifecycle import recover, start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import DatabaseTime, Interrupt, Run
from tests.agents import agent, call, registered


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


@pytest.mark.parametrize("seconds", [300, -300], ids=["ahead", "back"])
def test_a_jump_of_the_databases_clock_delays_a_run_at_most(seconds):
    """What is stored is that much nearer, or further away, than it was."""
    ran = []

    def note(state):
        ran.append(1)

    graph = StateGraph(State)
    graph.add_node("note", note).add_edge(START, "note").add_edge("note", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        held = claim_run(run.pk)  # by a worker that is not heard of again
        row = Run.objects.filter(pk=run.pk)
        row.update(lease_expires_at=DatabaseTime(6 - seconds))
        if seconds < 0:
            assert recover.sweep() == []  # later than it would have been, and
            row.update(lease_expires_at=DatabaseTime(-1))  # when it is time
        assert recover.sweep() == [run.pk]
        execute(run.pk)
        with pytest.raises(LeaseLost), transaction.atomic():
            Run.held(held.lease)
    assert (row.get().status, ran) == ("completed", [1])
