"""What waits is found again: after a reload, on another device, when somebody writes instead."""

import json

import pytest
from rest_framework.test import APIClient

from agentruntime.models import Message, Thread
from approvals.decide import decide
from approvals.exceptions import NoLongerAsked
from approvals.models import Approval

pytestmark = pytest.mark.django_db(transaction=True)


def device(user):
    client = APIClient()
    client.force_authenticate(user)
    return client


def test_what_waits_is_in_the_thread_with_all_that_a_button_needs(ask, alice):
    approval = ask()
    for _ in range(2):  # nothing of it is kept in a page or a process
        [asked] = (
            device(alice).get(f"/api/v1/threads/{approval.thread_id}/").json()["open_interrupts"]
        )
        assert (asked["approval"], asked["kind"]) == (str(approval.pk), "approval")
        assert asked["payload"]["tool"] == "refund"
        assert asked["payload"]["arguments"]["order_id"] == "1042"
        assert asked["expires_at"]


def test_two_devices_can_decide_and_the_later_one_sees_who_did(ask, bob, person, work, shop):
    carol = person("carol", "approvals.decide_refund")
    approval = ask()
    shown = []
    for user in (bob, carol, bob):
        found = device(user).get("/api/v1/approvals/", {"status": "pending"}).json()["results"]
        shown.append((user, [(one["id"], one["digest"]) for one in found]))
    assert len({tuple(found) for _, found in shown}) == 1
    body = {"digest": approval.digest}
    path = f"/api/v1/approvals/{approval.pk}"
    assert device(bob).post(f"{path}/approve/", body, format="json").status_code == 200
    late = device(carol).post(f"{path}/decline/", body, format="json")
    assert (late.status_code, late.json()["decision"]["by"]) == (409, "bob")
    work()
    assert len(shop.refunds) == 1


@pytest.mark.parametrize(
    ("on_busy", "status", "became"),
    [("reject", 409, "pending"), ("queue", 201, "pending"), ("cancel", 201, "cancelled")],
)
def test_a_message_instead_of_a_button(ask, agent, alice, bob, work, shop, on_busy, status, became):
    approval = ask()
    Thread.objects.update(on_busy=on_busy)
    wanted = json.dumps([{"tool": "refund", "arguments": {"order_id": "7", "amount": "30.00"}}])
    made = device(alice).post(
        f"/api/v1/threads/{approval.thread_id}/runs/",
        {"graph": agent, "input": wanted},
        format="json",
    )
    assert made.status_code == status
    work()
    approval.refresh_from_db()
    assert (approval.status, shop.refunds) == (became, [])
    if became == "cancelled":
        with pytest.raises(NoLongerAsked, match="withdrawn"):
            decide(approval_id=approval.pk, verdict="approve", user=bob)
        said = Message.objects.filter(thread_id=approval.thread_id, role="tool")
        assert "withdrawn" in said.get().content
        # The message is answered: its own call has a card of its own.
        assert Approval.objects.get(status="pending").arguments["order_id"] == "7"
        return
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    work()
    assert [one["order_id"] for one in shop.refunds] == ["1042"]
    waiting = Approval.objects.filter(status="pending").values_list("arguments", flat=True)
    assert [one["order_id"] for one in waiting] == (["7"] if on_busy == "queue" else [])
