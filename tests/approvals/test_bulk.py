"""An explicit list, decided one by one, in bounded steps, with a result for each."""

import json
import time

import pytest
from django.contrib.auth import get_user_model

from agentruntime.models import Interrupt, Run, Thread, ToolExecution
from approvals.decide import decide
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "/admin/approvals/approval/"


@pytest.fixture
def desk(client, bob):
    client.force_login(bob)
    return client


def choose(desk, verdict, approvals, **more):
    body = {"action": f"{verdict}_selected", "_selected_action": [str(a.pk) for a in approvals]}
    return desk.post(QUEUE, body | more)


def go(desk, page, **more):
    """Confirm, and go on until nothing is left."""
    body = {"items": page.context["packed"], "verdict": page.context["verdict"], **more}
    results = []
    while True:
        page = desk.post(f"{QUEUE}bulk/", body)
        assert page.status_code == 200
        results += page.context["results"]
        if not page.context["left"]:
            return page, results
        names = ("verdict", "reason", "done", "failed")
        body = {name: page.context[name] for name in names} | {"items": page.context["packed"]}


def test_each_of_the_list_is_decided_by_itself(ask, desk, bob, work, shop):
    approvals = [ask(order_id=str(n)) for n in range(3)]
    page = choose(desk, "approve", approvals)
    decide(approval_id=approvals[1].pk, verdict="decline", user=bob, reason="meanwhile")
    page, results = go(desk, page)
    assert (page.context["done"], page.context["failed"]) == (2, 1)
    told = {str(one.approval_id): one.told for one, _ in results}
    assert "declined" in told[str(approvals[1].pk)]
    work()
    assert sorted(one["order_id"] for one in shop.refunds) == ["0", "2"]
    assert set(Decision.objects.values_list("door", flat=True)) == {"bulk", "python"}


def test_what_changed_since_it_was_listed_is_left_out(ask, desk, work, shop):
    approval = ask()
    page = choose(desk, "approve", [approval])
    Approval.objects.update(digest="f" * 64)
    page, _ = go(desk, page)
    assert page.context["failed"] == 1
    work()
    assert shop.refunds == []


def test_large_amounts_are_never_approved_among_others(ask, desk, work, shop):
    small, large = ask(amount="50"), ask(amount="50.01")
    page = choose(desk, "approve", [small, large])
    assert [one.pk for one, _ in page.context["refused"]] == [large.pk]
    forged = json.dumps([[str(large.pk), large.digest]])
    answer = desk.post(f"{QUEUE}bulk/", {"items": forged, "verdict": "approve"})
    assert (answer.context["done"], answer.context["failed"]) == (0, 1)
    work()
    assert shop.refunds == []


@pytest.mark.parametrize("items", ["", "x", "{}", "[1]", '[["a","b"]]', "[[]]"])
def test_a_forged_list_is_refused(ask, desk, items):
    ask()
    answer = desk.post(f"{QUEUE}bulk/", {"items": items, "verdict": "approve"})
    assert answer.status_code in (200, 400)
    assert not Decision.objects.exists()


def many(approval, count):
    """Copy an approval, with all that it stands on, `count` times."""
    thread, run = Thread.objects.get(pk=approval.thread_id), Run.objects.get(pk=approval.run_id)
    call = ToolExecution.objects.get(pk=approval.tool_execution_id)
    asked = Interrupt.objects.get(pk=approval.interrupt_id)
    for number in range(count):
        one = Thread.objects.create(user=thread.user)
        fields = {f.attname: getattr(run, f.attname) for f in Run._meta.fields if f.name != "id"}
        own = Run.objects.create(**fields | {"thread_id": one.pk})
        fields = {
            f.attname: getattr(call, f.attname)
            for f in ToolExecution._meta.fields
            if f.name != "id"
        }
        row = ToolExecution.objects.create(**fields | {"thread_id": one.pk, "run_id": own.pk})
        fields = {
            f.attname: getattr(asked, f.attname) for f in Interrupt._meta.fields if f.name != "id"
        }
        question = Interrupt.objects.create(
            **fields | {"thread_id": one.pk, "run_id": own.pk, "tool_execution_id": row.pk}
        )
        fields = {
            f.attname: getattr(approval, f.attname) for f in Approval._meta.fields if f.name != "id"
        }
        Approval.objects.create(**fields | {
            "interrupt_id": question.pk, "thread_id": one.pk, "run_id": own.pk,
            "tool_execution_id": row.pk, "title": f"Refund 30.00 for {number}",
        })  # fmt: skip


@pytest.mark.slow
@pytest.mark.database("postgresql")
def test_fifteen_hundred_wait_and_are_cleared_in_steps_while_new_ones_come_in(ask, desk, bob):
    many(ask(), 1499)
    desk.get(QUEUE)
    seconds = min(timed(lambda: desk.get(QUEUE)) for _ in range(5))
    print(f"list of 1,500: {seconds * 1000:.0f} ms")
    assert seconds < 0.3 * 3  # a shared machine; the figure above is what is meant
    page = choose(desk, "decline", Approval.objects.all()[:1], select_across="1")
    assert len(page.context["items"]) == 1500
    ask(order_id="new")
    decide(approval_id=Approval.objects.first().pk, verdict="approve", user=bob)
    first = desk.post(
        f"{QUEUE}bulk/", {"items": page.context["packed"], "verdict": "decline", "reason": "clear"}
    )
    assert (first.context["done"] + first.context["failed"], first.context["left"]) == (50, 1450)
    page, results = go(desk, page, reason="clear")
    assert len(results) == 1500
    assert Approval.objects.filter(status="declined").count() == 1499
    assert Approval.objects.get(status="pending").arguments["order_id"] == "new"


def timed(work):
    start = time.perf_counter()
    assert work().status_code == 200
    return time.perf_counter() - start


def test_the_queue_takes_as_many_queries_for_many_as_for_few(
    ask, desk, django_assert_max_num_queries
):
    many(ask(), 30)
    with django_assert_max_num_queries(22):
        desk.get(QUEUE)


def test_staff_without_the_right_decide_none_of_a_list(ask, client, person):
    approval = ask()
    client.force_login(person("viewer", "approvals.view_approval"))
    page = choose(client, "approve", [approval])
    assert page.context["items"] == []
    assert get_user_model().objects.filter(username="viewer").exists()
