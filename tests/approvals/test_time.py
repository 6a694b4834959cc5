"""Expiry, reminders, escalation: due times live in the database, and words say what happened."""

from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from agentruntime.graph import ApprovalRule
from agentruntime.lifecycle import recover_runs, stop_run
from agentruntime.models import Event, Interrupt
from approvals import due
from approvals.decide import decide
from approvals.exceptions import NoLongerAsked
from approvals.models import Approval, Notice

pytestmark = pytest.mark.django_db(transaction=True)
PAST = timedelta(seconds=5)


def pass_time(**fields):
    past = timezone.now() - PAST
    Approval.objects.update(**dict.fromkeys(fields, past))


def let_expire(approval):
    past = timezone.now() - PAST
    Interrupt.objects.filter(pk=approval.interrupt_id).update(expires_at=past)
    Approval.objects.filter(pk=approval.pk).update(expires_at=past)


def test_nobody_answered_is_never_told_as_declined(ask, bob, work, shop, answer_of):
    approval = ask()
    let_expire(approval)
    recover_runs()
    work()
    approval.refresh_from_db()
    assert (approval.status, approval.outcome) == ("expired", "not_executed")
    assert approval.told == "Expired, nobody answered"
    assert shop.refunds == []
    for told in (answer_of(approval), approval.told):
        assert "nobody answered" in told
        assert "declined" not in told
    event = Event.objects.get(type="approval.expired")
    assert event.data == {"approval": str(approval.pk), "by": "system"}
    with pytest.raises(NoLongerAsked, match="expired"):
        decide(approval_id=approval.pk, verdict="approve", user=bob)


def test_a_late_yes_is_refused_before_the_sweep_has_come_by(ask, bob):
    approval = ask()
    let_expire(approval)
    with pytest.raises(NoLongerAsked, match="Nobody answered in time"):
        decide(approval_id=approval.pk, verdict="approve", user=bob)


@pytest.mark.parametrize("rule", [
    ApprovalRule(permission="approvals.decide_refund", expires_in=timedelta(days=1),
                 on_expiry="wait"),
])  # fmt: skip
def test_one_that_keeps_waiting_is_overdue_and_can_still_be_decided(ask, bob, work, shop, client):
    approval = ask()
    assert approval.expires_at is not None
    let_expire(approval)
    Interrupt.objects.update(expires_at=None)
    recover_runs()
    client.force_login(bob)
    assert "overdue" in client.get("/admin/approvals/approval/?queue=overdue").text
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    work()
    assert len(shop.refunds) == 1


def test_an_expired_one_does_not_block_a_living_sibling(agent, alice, bob, work, shop):
    import json

    from agentruntime.lifecycle import start_run

    calls = [
        {"tool": "refund", "arguments": {"order_id": order, "amount": "30"}} for order in ("1", "2")
    ]
    start_run(graph=agent, input=json.dumps(calls), user=alice)
    work()
    first, second = Approval.objects.order_by("created_at")
    let_expire(first)
    recover_runs()
    work()
    decide(approval_id=second.pk, verdict="approve", user=bob)
    work()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status, second.outcome) == ("expired", "approved", "executed")
    assert [one["order_id"] for one in shop.refunds] == [second.arguments["order_id"]]


def test_a_stopped_run_withdraws_its_question(ask, bob, work):
    approval = ask()
    stop_run(run_id=approval.run_id)
    work()
    approval.refresh_from_db()
    assert (approval.status, approval.told) == ("cancelled", "Withdrawn")
    with pytest.raises(NoLongerAsked, match="withdrawn"):
        decide(approval_id=approval.pk, verdict="approve", user=bob)


def test_what_became_of_it_is_told(ask, bob, work, client):
    approval = ask("explode", order_id="1")
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    work()
    approval.refresh_from_db()
    assert (approval.outcome, approval.told) == ("failed", "Approved, failed")
    client.force_login(bob)
    assert "the bank said no" in client.get(f"/admin/approvals/approval/{approval.pk}/change/").text


def test_an_approved_call_that_is_never_reached_is_not_executed(ask, bob, work, shop):
    approval = ask()
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    stop_run(run_id=approval.run_id)
    work()
    approval.refresh_from_db()
    assert (approval.outcome, shop.refunds) == ("not_executed", [])


@pytest.fixture
def by_mail(settings):
    settings.APPROVALS = {"MAIL": True, "SITE_URL": "https://desk.example.com"}


@pytest.mark.parametrize("rule", [
    ApprovalRule(permission="approvals.decide_refund", remind_after=timedelta(hours=1)),
])  # fmt: skip
def test_reminders_come_when_it_is_time_and_end(ask, bob, by_mail):
    approval = ask()
    told = []
    for _ in range(6):
        due.sweep()
        due.sweep()
        told.append([one.subject.split(":")[0] for one in mail.outbox])
        mail.outbox.clear()
        Approval.objects.filter(remind_at__isnull=False).update(remind_at=timezone.now() - PAST)
    assert told == [["To decide"], *[["Still waiting"]] * 3, [], []]
    assert Notice.objects.filter(approval=approval).count() == 4


@pytest.mark.parametrize("rule", [
    ApprovalRule(permission="approvals.decide_refund", group="desk",
                 escalate_after=timedelta(hours=1), escalate_to="leads"),
])  # fmt: skip
def test_escalation_tells_and_lets_another_group(ask, person, by_mail, work, shop):
    person("clerk", "approvals.decide_refund", groups=("desk",))
    lead = person("lead", "approvals.decide_refund", groups=("leads",))
    approval = ask()
    due.sweep()
    assert [one.to for one in mail.outbox] == [["clerk@example.com"]]
    pass_time(escalate_at=True)
    due.sweep()
    assert sorted(one.to[0] for one in mail.outbox[1:]) == ["clerk@example.com", "lead@example.com"]
    decide(approval_id=approval.pk, verdict="approve", user=lead)
    work()
    assert len(shop.refunds) == 1


def test_nothing_is_due_for_what_is_closed(ask, bob, by_mail):
    approval = ask()
    decide(approval_id=approval.pk, verdict="decline", user=bob, reason="no")
    due.sweep()
    assert mail.outbox == []
    assert not Notice.objects.exists()
