"""The queue and the decision page in the admin, as requests."""

import pytest
from django.urls import reverse

from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "/admin/approvals/approval/"


def page_of(approval):
    return reverse("admin:approvals_approval_change", args=[approval.pk])


@pytest.fixture
def desk(client, bob):
    client.force_login(bob)
    return client


def test_the_queue_shows_what_waits(ask, desk):
    approval = ask()
    page = desk.get(QUEUE)
    assert page.status_code == 200
    assert "Refund 30.00 for 1042" in page.text
    assert page_of(approval) in page.text
    assert "for you" in page.text


def test_the_page_shows_the_call_and_a_form(ask, desk):
    approval = ask()
    page = desk.get(page_of(approval))
    assert page.status_code == 200
    for word in ("30.00", "1042", "broken", approval.digest, "alice", "approvals.decide_refund"):
        assert word in page.text


def form_of(page, **given):
    form = page.context["form"]
    return {"digest": form.initial["digest"], "shown": form.initial["shown"]} | given


def test_a_yes_on_the_page_runs_the_call_and_the_page_tells(ask, desk, work, shop):
    approval = ask()
    page = desk.get(page_of(approval))
    answer = desk.post(
        f"{page_of(approval)[:-7]}decide/", form_of(page, verdict="approve"), follow=True
    )
    assert answer.status_code == 200
    work()
    assert len(shop.refunds) == 1
    assert "Approved, executed" in desk.get(page_of(approval)).text
    assert Decision.objects.get().door == "admin"
    assert Decision.objects.get().seconds_shown is not None


def test_a_no_needs_a_reason(ask, desk):
    approval = ask()
    page = desk.get(page_of(approval))
    url = f"{page_of(approval)[:-7]}decide/"
    assert desk.post(url, form_of(page, verdict="decline")).status_code == 400
    assert desk.post(url, form_of(page, verdict="decline", reason="no")).status_code == 302
    assert Approval.objects.get().status == "declined"


def test_an_edit_on_the_page_runs_edited(ask, desk, work, shop):
    approval = ask()
    page = desk.get(page_of(approval))
    url = f"{page_of(approval)[:-7]}decide/"
    desk.post(url, form_of(page, **{"verdict": "approve", "edit-amount": "12.50"}))
    work()
    assert [one["amount"] for one in shop.refunds] == ["12.50"]
    assert "Edited and approved, executed" in desk.get(page_of(approval)).text
    assert "the agent asked for" in desk.get(page_of(approval)).text.lower()


def test_nothing_is_decided_by_get(ask, desk):
    approval = ask()
    for part in ("decide", "claim", "release"):
        assert desk.get(f"{page_of(approval)[:-7]}{part}/").status_code == 405
    assert desk.get(f"{QUEUE}bulk/").status_code == 405


def test_claim_and_release(ask, desk, bob):
    approval = ask()
    desk.post(f"{page_of(approval)[:-7]}claim/")
    assert Approval.objects.get().claimed_by == bob
    assert "claimed by bob" in desk.get(QUEUE).text
    desk.post(f"{page_of(approval)[:-7]}release/")
    assert Approval.objects.get().claimed_by is None
