"""Every door, and every person who must not get through it: nothing decided, the try logged."""

import json
import logging

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from agentruntime.models import Interrupt, Thread
from approvals.decide import decide
from approvals.exceptions import ApprovalError, NotAllowed
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)


def through_python(approval, user):
    try:
        decide(approval_id=approval.pk, verdict="approve", user=user, digest=approval.digest)
    except ApprovalError as refused:
        return type(refused).status
    return 200


def through_shell(approval, user):
    name = user.username if user else "nobody"
    try:
        call_command("decide", str(approval.pk), "approve", "--user", name)
    except CommandError:
        return 403
    return 200


def through_rest(approval, user):
    client = APIClient()
    client.force_authenticate(user)
    body = {"digest": approval.digest}
    return client.post(f"/api/v1/approvals/{approval.pk}/approve/", body, format="json").status_code


def through_page(approval, user):
    client = Client()
    if user:
        client.force_login(user)
    body = {"digest": approval.digest, "verdict": "approve"}
    return client.post(f"/admin/approvals/approval/{approval.pk}/decide/", body).status_code


def through_bulk(approval, user):
    client = Client()
    if user:
        client.force_login(user)
    items = json.dumps([[str(approval.pk), approval.digest]])
    body = {"items": items, "verdict": "approve"}
    answer = client.post("/admin/approvals/approval/bulk/", body)
    if answer.status_code == 200:
        return 200 if answer.context["done"] else 403
    return answer.status_code


DOORS = [through_python, through_shell, through_rest, through_page, through_bulk]
RIGHT = "approvals.decide_refund"


def anonymous(person, settings):
    return None


def without_permission(person, settings):
    return person("wrong")


def without_staff(person, settings):
    return person("wrong", is_staff=False)


def with_another_permission(person, settings):
    return person("wrong", "approvals.decide_approval")


def who_only_views(person, settings):
    return person("wrong", "approvals.view_approval")


def above_the_limit(person, settings):
    settings.APPROVALS = {"RULES": {"refund": {"limits": [{"up_to": "29.99", "group": "small"}, {
        "up_to": None, "group": "big"}]}}}  # fmt: skip
    return person("wrong", RIGHT, groups=("small",))


def inactive(person, settings):
    user = person("wrong", RIGHT)
    user.is_active = False
    user.save()
    return user


def superuser(person, settings):
    return person("wrong", is_superuser=True)


def demoted_since_login(person, settings):
    user = person("wrong", RIGHT)
    assert user.has_perm(RIGHT)
    user.user_permissions.clear()
    return user  # the object still remembers what it was told


def of_another_tenant(person, settings):
    settings.AGENTRUNTIME = {
        "EMBEDDED_WORKER": False, "TENANT_OF": "tests.approvals.test_wrong_people.tenant",
    }  # fmt: skip
    Thread.objects.update(tenant="a")
    Approval.objects.update(tenant="a")
    return person("wrong", RIGHT)


def tenant(user):
    return "b" if user.username == "wrong" else "a"


WRONG = [
    anonymous, without_permission, without_staff, with_another_permission, who_only_views,
    above_the_limit, inactive, superuser, demoted_since_login, of_another_tenant,
]  # fmt: skip


@pytest.mark.parametrize("who", WRONG, ids=lambda one: one.__name__)
@pytest.mark.parametrize("door", DOORS, ids=lambda one: one.__name__)
def test_nobody_wrong_gets_through_any_door(
    ask, bob, person, settings, work, shop, caplog, door, who
):
    approval = ask()
    user = who(person, settings)
    with caplog.at_level(logging.WARNING):
        status = door(approval, user)
    assert status in (302, 401, 403, 404), status
    assert (status == 302) == (door in (through_page, through_bulk) and _sent_to_login(user))
    work()
    approval.refresh_from_db()
    assert (approval.status, shop.refunds) == ("pending", [])
    assert Interrupt.objects.get(pk=approval.interrupt_id).status == "open"
    assert not Decision.objects.exists()
    if door is not through_shell:  # which says it on the screen
        assert "Decision refused" in caplog.text
    is_page = door in (through_page, through_bulk)
    known = user is not None and (user.is_active or not is_page)  # a page knows no inactive one
    assert noted(approval) == known


def noted(approval):
    """Whether the history of the approval, which the admin shows, tells of a refused try."""
    lines = LogEntry.objects.filter(
        object_id=str(approval.pk), change_message__startswith="Refused"
    )
    return lines.exists()


def test_the_same_refused_try_is_noted_once_and_shown_in_the_admin(ask, bob, person, client):
    approval = ask()
    wrong = person("wrong")
    for _ in range(5):
        through_python(approval, wrong)
        through_rest(approval, wrong)
    lines = LogEntry.objects.filter(user=wrong).values_list("change_message", flat=True)
    assert sorted(line.split(":")[0] for line in lines) == ["Refused (Python)", "Refused (REST)"]
    client.force_login(bob)
    page = client.get(f"/admin/approvals/approval/{approval.pk}/history/").content.decode()
    assert "Refused (Python): wrong may not decide this" in page


def test_what_is_noted_of_refused_tries_is_bounded(ask, person, settings, monkeypatch):
    from approvals import history

    monkeypatch.setattr(history, "MAX_LATELY", 3)
    user, approval = above_the_limit(person, settings), ask(amount="20.00")
    for amount in range(30, 40):  # each is told with the amount that was tried
        with pytest.raises(NotAllowed):
            decide(
                approval_id=approval.pk, verdict="approve", user=user, digest=approval.digest,
                arguments={"amount": f"{amount}.00"},
            )  # fmt: skip
    assert LogEntry.objects.filter(user=user).count() == 3


def test_bulk_tells_nothing_of_what_is_not_visible(ask, bob, person, settings):
    approval = ask(order_id="of-red")
    wrong = of_another_tenant(person, settings)
    client = Client()
    client.force_login(wrong)
    answers = []
    for ident in (approval.pk, "00000000-0000-4000-8000-000000000000"):
        body = {"items": json.dumps([[str(ident), approval.digest]]), "verdict": "approve"}
        page = client.post("/admin/approvals/approval/bulk/", body).content.decode()
        assert "of-red" not in page
        told = [one.strip() for one in page.splitlines() if "It is gone" in one]
        answers.append([one.replace(str(ident), "ID") for one in told])
    assert answers[0] == answers[1] != []
    assert noted(approval)


def test_a_lost_race_is_no_refused_try(ask, bob, person):
    approval = ask()
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    assert through_python(approval, person("late", RIGHT)) == 409
    assert not noted(approval)


def _sent_to_login(user):
    if user is None:
        return True
    user.refresh_from_db()
    return not (user.is_active and user.is_staff)


@pytest.mark.parametrize("door", DOORS, ids=lambda one: one.__name__)
def test_the_requester_gets_through_no_door(ask, person, door, work, shop):
    dora = person("dora", RIGHT)
    approval = ask(user=dora)
    assert door(approval, dora) in (403, 404)
    work()
    assert shop.refunds == []


@pytest.mark.parametrize("door", DOORS, ids=lambda one: one.__name__)
def test_the_right_person_gets_through_every_door(ask, bob, door, work, shop):
    assert door(ask(), bob) in (200, 302)
    work()
    assert len(shop.refunds) == 1


def test_what_is_not_visible_is_not_found_and_not_listed(ask, person):
    approval = ask()
    client = APIClient()
    client.force_authenticate(person("stranger"))
    assert client.get("/api/v1/approvals/").json()["results"] == []
    for path in ("", "approve/", "decline/", "claim/", "release/"):
        call = client.post if path else client.get
        assert call(f"/api/v1/approvals/{approval.pk}/{path}").status_code == 404


def test_the_requester_sees_it_and_may_not(ask, alice):
    approval = ask()
    client = APIClient()
    client.force_authenticate(alice)
    assert client.get(f"/api/v1/approvals/{approval.pk}/").status_code == 200
    body = {"digest": approval.digest}
    answer = client.post(f"/api/v1/approvals/{approval.pk}/approve/", body, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "APPROVAL_FORBIDDEN_001")


def test_a_wrong_form_token_decides_nothing(ask, bob):
    approval = ask()
    client = Client(enforce_csrf_checks=True)
    client.force_login(bob)
    body = {"digest": approval.digest, "verdict": "approve"}
    for path in (f"{approval.pk}/decide", f"{approval.pk}/claim", "bulk"):
        assert client.post(f"/admin/approvals/approval/{path}/", body).status_code == 403
    assert Approval.objects.get().status == "pending"
