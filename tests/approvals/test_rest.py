"""The REST routes, as the contract says them."""

import pytest
from rest_framework.test import APIClient

from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/api/v1/approvals/"


@pytest.fixture
def api(bob):
    client = APIClient()
    client.force_authenticate(bob)
    return client


def url(approval, verb=""):
    return f"{LIST}{approval.pk}/{verb}{'/' if verb else ''}"


def test_what_waits_is_listed_and_read(ask, api):
    approval = ask()
    page = api.get(LIST, {"status": "pending"}).json()
    body = page["results"][0]
    assert body == api.get(url(approval)).json()
    assert {
        "id": str(approval.pk), "run": str(approval.run_id), "thread": str(approval.thread_id),
        "title": "Refund 30.00 for 1042", "tool": "refund", "digest": approval.digest,
        "arguments": {"order_id": "1042", "amount": "30.00", "reason": "broken"},
        "status": "pending", "decision": None,
    }.items() <= body.items()  # fmt: skip
    assert body["expires_at"]
    assert api.get(LIST, {"status": "approved"}).json()["results"] == []


def test_a_decision_answers_with_itself_and_so_does_its_repeat(ask, api, work, shop):
    approval = ask()
    request = {"digest": approval.digest, "reason": "fine"}
    first = api.post(url(approval, "approve"), request, format="json")
    again = api.post(url(approval, "approve"), request, format="json")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert {"verdict": "approve", "by": "bob", "reason": "fine", "arguments": None}.items() <= (
        first.json().items()
    )
    work()
    assert len(shop.refunds) == 1
    assert api.get(url(approval)).json()["decision"]["by"] == "bob"
    assert Decision.objects.get().door == "rest"


def test_the_digest_is_needed_and_must_be_the_stored_one(ask, api):
    approval = ask()
    assert api.post(url(approval, "approve"), {}, format="json").status_code == 400
    wrong = api.post(url(approval, "approve"), {"digest": "0" * 64}, format="json")
    assert (wrong.status_code, wrong.json()["code"]) == (409, "APPROVAL_DIGEST_002")
    assert not Decision.objects.exists()


def test_the_loser_is_told_who_when_and_what(ask, api, person):
    approval = ask()
    api.post(url(approval, "approve"), {"digest": approval.digest}, format="json")
    other = APIClient()
    other.force_authenticate(person("carol", "approvals.decide_refund"))
    lost = other.post(url(approval, "decline"), {"digest": approval.digest}, format="json")
    assert lost.status_code == 409
    assert lost.json()["code"] == "APPROVAL_DECIDED_001"
    assert lost.json()["facts"]["by"] == "bob"
    assert lost.json()["decision"]["verdict"] == "approve"
    assert "bob approved this at" in lost.json()["detail"]


@pytest.mark.parametrize("arguments", [{}, {"amount": None}, {"order_id": "7"}, {"x": 1}, [1]])
def test_a_bad_edit_is_a_400(ask, api, arguments):
    approval = ask()
    body = {"digest": approval.digest, "arguments": arguments}
    assert api.post(url(approval, "approve"), body, format="json").status_code == 400
    assert Approval.objects.get().status == "pending"


def test_an_edit_is_told(ask, api, work, shop):
    approval = ask()
    body = {"digest": approval.digest, "arguments": {"amount": "9.50"}}
    answer = api.post(url(approval, "approve"), body, format="json").json()
    assert answer["arguments"] == {"order_id": "1042", "amount": "9.50", "reason": "broken"}
    work()
    assert shop.refunds[0]["amount"] == "9.50"


@pytest.mark.parametrize(
    "body",
    [b'{"digest": "a", "by": "root"}', b'{"digest": "a", "digest": "b"}', b"[]", b"{", b'"x"',
     b'{"digest": NaN}', b'{"digest":"a","reason":"\\u0000"}', b'{"digest":"a","reason":"\\ud800"}',
     b'{"digest":"a","arguments":' + b"[" * 5000 + b"]" * 5000 + b"}", b"\xff"],
)  # fmt: skip
def test_a_body_that_is_odd_or_says_too_much_is_a_400(ask, api, body):
    approval = ask()
    for verb in ("approve", "decline"):
        answer = api.post(url(approval, verb), body, content_type="application/json")
        assert answer.status_code == 400, (verb, answer.content)
    assert not Decision.objects.exists()


def test_only_named_filters_and_real_ids_are_looked_up(ask, api):
    ask()
    assert api.get(f"{LIST}not-a-uuid/").status_code == 404
    for wrong in ({"status": "nonsense"}, {"thread": ""}, {"nonsense": "1"}):
        assert api.get(LIST, wrong).status_code == 400, wrong


def test_claim_and_release(ask, api):
    approval = ask()
    assert api.post(url(approval, "claim")).json()["claimed_by"] == "bob"
    assert api.post(url(approval, "release")).json()["claimed_by"] is None


def test_the_list_takes_as_many_queries_for_many_as_for_one(
    ask, api, django_assert_max_num_queries
):
    for _ in range(5):
        ask()
    with django_assert_max_num_queries(8):
        assert len(api.get(LIST).json()["results"]) == 5


@pytest.mark.parametrize(
    ("body", "told"),
    [({"digest": 5}, "digest"), ({"reason": 5}, "reason"), ({"x": 1}, "x is not a field")],
)
def test_a_body_that_is_no_decision_is_a_400_that_names_its_field(ask, api, body, told):
    approval = ask()
    answer = api.post(url(approval, "decline"), {"digest": approval.digest} | body, format="json")
    assert answer.status_code == 400
    assert told in answer.json()["detail"]
    assert not Decision.objects.exists()


@pytest.mark.parametrize("cursor", ["cD0lMDA=", "cD14"])
def test_a_made_up_cursor_is_refused(ask, api, cursor):
    ask()
    answer = api.get(LIST, {"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert api.get(LIST, {"page_size": "x"}).status_code == 400
