"""Two agents at the counter: one conversation, one approval, one refund."""

import pytest

from agentruntime.demo.journal import Journal
from approvals.decide import decide
from approvals.models import Approval

pytestmark = pytest.mark.django_db(transaction=True)


def said(run):
    rows = run.thread.messages.order_by("ordinal")
    return [(row.role, [call["name"] for call in row.tool_calls]) for row in rows]


def test_the_reception_hands_a_refund_over_and_the_cashier_pays_it_once(
    begin, lead, work_off, shop
):
    run = begin(graph="desk")
    assert run.status == "interrupted"
    assert said(run) == [
        ("user", []),
        ("assistant", ["to_cashier"]),
        ("tool", []),
        ("assistant", ["lookup_order"]),
        ("tool", []),
        ("assistant", ["refund"]),
    ]
    decide(approval_id=Approval.objects.get().pk, verdict="approve", user=lead)
    run = work_off(run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert [one["kind"] for one in Journal(shop / "payments.jsonl").entries()] == ["refund"]
    assert run.thread.messages.order_by("ordinal").last().role == "assistant"


def test_the_reception_answers_a_question_itself(begin):
    run = begin("Where is my order 1042?", graph="desk")
    assert (run.status, said(run)[1]) == ("completed", ("assistant", ["lookup_order"]))
    assert "1042" in run.thread.messages.order_by("ordinal").last().content
