"""Who may decide how much, how many must agree, and that it is asked again when the call starts."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from agentruntime.models import ToolExecution
from approvals.decide import decide
from approvals.exceptions import AlreadyAgreed, AlreadyDecided, InvalidReason, NotAllowed
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)

LIMITS = [
    {"up_to": "50", "group": "agents"},
    {"up_to": "500", "group": "leads"},
    {"up_to": "5000", "group": "leads", "approvers": 2},
]


@pytest.fixture
def limits(settings):
    settings.APPROVALS = {"RULES": {"refund": {"limits": LIMITS}}}


def staff(person, name, group):
    return person(name, "approvals.decide_refund", groups=(group,))


def yes(approval, user, **more):
    return decide(approval_id=approval.pk, verdict="approve", user=user, **more)


def test_each_may_decide_up_to_a_limit(ask, person, limits):
    agent, lead = staff(person, "agent", "agents"), staff(person, "lead", "leads")
    assert yes(ask(amount="50.00"), agent).is_final
    with pytest.raises(NotAllowed, match="above what they may decide"):
        yes(ask(amount="50.01"), agent)
    assert yes(ask(amount="500"), lead).is_final


def test_above_that_two_must_agree_and_nothing_runs_before(ask, person, limits, work, shop):
    one, two = staff(person, "one", "leads"), staff(person, "two", "leads")
    approval = ask(amount="500.01")
    first = yes(approval, one)
    work()
    approval.refresh_from_db()
    assert (first.is_final, approval.status, shop.refunds) == (False, "pending", [])
    assert yes(approval, one) == first
    assert yes(approval, two).is_final
    work()
    assert len(shop.refunds) == 1


def test_where_no_rule_fits_nobody_may_and_the_page_says_so(ask, person, limits, client):
    lead = staff(person, "lead", "leads")
    approval = ask(amount="5000.01")
    with pytest.raises(NotAllowed, match="nobody may"):
        yes(approval, lead)
    client.force_login(lead)
    page = client.get(f"/admin/approvals/approval/{approval.pk}/change/").text
    assert "No rule covers 5000.01 EUR, so nobody may decide this." in page
    assert 'name="verdict"' not in page


def test_one_no_is_enough(ask, person, limits, work, shop):
    one, two = staff(person, "one", "leads"), staff(person, "two", "leads")
    approval = ask(amount="900")
    yes(approval, one)
    decide(approval_id=approval.pk, verdict="decline", user=two, reason="too much")
    work()
    assert shop.refunds == []
    with pytest.raises(AlreadyDecided, match="two declined"):
        yes(approval, one, reason="again")


def test_an_edit_voids_the_yes_of_others_and_its_editor_does_not_count(
    ask, person, limits, work, shop
):
    one, two, three = (staff(person, name, "leads") for name in ("one", "two", "three"))
    approval = ask(amount="900")
    yes(approval, one)
    edited = yes(approval, two, arguments={"amount": "800.00"})
    approval.refresh_from_db()
    assert (edited.is_final, approval.status) == (False, "pending")
    assert approval.digest == edited.digest
    assert not yes(approval, one, digest=approval.digest).is_final
    assert Approval.objects.get(pk=approval.pk).status == "pending"
    assert yes(approval, three).is_final
    work()
    assert [refund["amount"] for refund in shop.refunds] == ["800.00"]
    assert Decision.objects.count() == 4


def test_an_edit_that_brings_the_first_amount_back_is_shown_as_it_runs(
    ask, person, limits, work, shop
):
    one, two, three = (staff(person, name, "leads") for name in ("one", "two", "three"))
    approval = ask(amount="900")
    yes(approval, one, arguments={"amount": "800.00"})
    yes(approval, two, arguments={"amount": "900"})
    approval.refresh_from_db()
    assert (approval.shown_amount, approval.amount) == ("900", 900)
    assert yes(approval, three).is_final or yes(approval, one).is_final
    work()
    assert [refund["amount"] for refund in shop.refunds] == [approval.arguments["amount"]]


def test_an_edit_can_not_raise_the_amount_above_ones_limit(ask, person, limits):
    agent = staff(person, "agent", "agents")
    with pytest.raises(NotAllowed, match="above"):
        yes(ask(amount="40"), agent, arguments={"amount": "51"})


def test_an_edit_can_not_lower_a_question_into_ones_limit(ask, person, limits):
    agent = staff(person, "agent", "agents")
    with pytest.raises(NotAllowed, match="above"):
        yes(ask(amount="60"), agent, arguments={"amount": "40"})


@pytest.mark.parametrize("amount", ["-5", "-0.01"])
def test_a_negative_amount_fits_no_limit(ask, person, limits, amount):
    with pytest.raises(NotAllowed, match="nobody may"):
        yes(ask(amount=amount), staff(person, "agent", "agents"))


def test_two_must_agree_where_the_code_says_so(ask, person, settings, work, shop):
    settings.APPROVALS = {"RULES": {"refund": {"approvers": 2}}}
    one, two = (person(name, "approvals.decide_refund") for name in ("one", "two"))
    approval = ask()
    assert not yes(approval, one).is_final
    assert yes(approval, two).is_final


def test_a_second_voice_for_the_same_version_is_refused(ask, person, settings):
    settings.APPROVALS = {"RULES": {"refund": {"approvers": 2}}}
    one, two = (person(name, "approvals.decide_refund") for name in ("one", "two"))
    approval = ask()
    yes(approval, one)
    api, url = APIClient(), f"/api/v1/approvals/{approval.pk}/approve/"
    api.force_authenticate(one)
    body = {"digest": approval.digest, "reason": "another"}
    again = api.post(url, body, format="json")
    assert (again.status_code, again.json()["code"]) == (409, "APPROVAL_AGREED_001")
    assert "already agreed to this version" in again.json()["detail"]
    page = Client()
    page.force_login(one)
    address = reverse("admin:approvals_approval_decide", args=[approval.pk])
    told = page.post(address, {"verdict": "approve", **body}, follow=True)
    assert "already agreed to this version" in told.content.decode()

    yes(approval, two, arguments={"amount": "20.00"})
    edited = Approval.objects.get(pk=approval.pk).digest
    with pytest.raises(AlreadyAgreed):
        yes(approval, one, arguments={"amount": "30.00"})
    approval.refresh_from_db()
    assert (approval.digest, approval.decisions.count()) == (edited, 2)
    assert yes(approval, one).digest == edited, "a new version takes a voice of its own"


def test_what_python_hands_over_is_checked(ask, bob):
    approval = ask()
    with pytest.raises(ValueError, match="A door is one of"):
        yes(approval, bob, door="window")
    for seconds in (float("nan"), float("inf"), "3", True):
        with pytest.raises(ValueError, match="seconds_shown is a number"):
            yes(approval, bob, seconds_shown=seconds)
    with pytest.raises(InvalidReason, match="it is no text"):
        yes(approval, bob, reason=1)
    assert yes(approval, bob, reason=None).reason == ""


def test_a_group_is_asked_for(ask, person, settings):
    settings.APPROVALS = {"RULES": {"mail": {"group": "post"}}}
    inside, outside = person("inside", groups=("post",)), person("outside")
    approval = ask("mail", to="x@example.com")
    with pytest.raises(NotAllowed, match="group post"):
        yes(approval, outside)
    assert yes(approval, inside).is_final


def test_a_rule_that_names_nobody_asks_for_the_default_permission(ask, person):
    approval = ask("mail", to="x@example.com")
    with pytest.raises(NotAllowed, match="decide_approval"):
        yes(approval, person("other", "approvals.decide_refund"))
    assert yes(approval, person("one", "approvals.decide_approval")).is_final


@pytest.mark.parametrize("change", ["permission", "inactive", "limit"])
def test_what_changed_since_the_yes_stops_the_call(ask, person, settings, work, shop, change):
    settings.APPROVALS = {"RULES": {"refund": {"limits": LIMITS}}}
    lead = staff(person, "lead", "leads")
    approval = ask(amount="400")
    yes(approval, lead)
    if change == "permission":
        lead.user_permissions.clear()
    elif change == "inactive":
        lead.is_active = False
        lead.save()
    else:
        settings.APPROVALS = {"RULES": {"refund": {"limits": [LIMITS[0]]}}}
    work()
    approval.refresh_from_db()
    assert shop.refunds == []
    assert (approval.status, approval.outcome) == ("approved", "not_executed")
    assert approval.told == "Approved, not executed"
    call = ToolExecution.objects.get(pk=approval.tool_execution_id)
    assert call.attempts == 0


def test_a_yes_of_somebody_who_lost_the_right_does_not_count_among_several(ask, person, limits):
    one, two, three = (staff(person, name, "leads") for name in ("one", "two", "three"))
    approval = ask(amount="900")
    yes(approval, one)
    one.groups.remove(Group.objects.get(name="leads"))
    assert not yes(approval, two).is_final
    assert yes(approval, three).is_final


def test_the_rights_and_the_rule_of_the_moment_are_kept(ask, person, limits):
    lead = staff(person, "lead", "leads")
    decision = yes(ask(amount="60"), lead)
    assert decision.rights["permissions"] == ["approvals.decide_refund"]
    assert decision.rights["groups"] == ["leads"]
    assert decision.rule["limits"][1] == {
        "up_to": "500", "permission": "", "group": "leads", "currency": "", "approvers": 1,
    }  # fmt: skip
    assert decision.seen["amount"] == "60"


@pytest.mark.parametrize("amount", ["1E+30", "99999999999999999999.999999999", "0.00000000001"])
def test_an_amount_of_any_size_is_asked_about_and_fits_no_small_limit(ask, person, limits, amount):
    approval = ask(amount=amount)
    agent = staff(person, "agent", "agents")
    if amount.startswith("0"):
        assert yes(approval, agent).is_final
    else:
        with pytest.raises(NotAllowed, match="nobody may"):
            yes(approval, agent)
