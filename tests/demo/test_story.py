"""The refund story with the real runtime: asked once, decided once, paid once, told as it was."""

import pytest

from agentruntime.demo.agents import provider_model, support_desk
from agentruntime.demo.shop import gateway
from agentruntime.graph import Message, State
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Interrupt, RunStatus, ToolExecution
from approvals.decide import decide
from approvals.models import Approval

pytestmark = pytest.mark.django_db(transaction=True)


def answer_of(run):
    return run.thread.messages.order_by("-ordinal")[0].content


def pending():
    return list(Approval.objects.pending().order_by("created_at"))


def test_a_refund_waits_for_a_person_and_nothing_is_paid_meanwhile(begin):
    run = begin()

    assert run.status == RunStatus.INTERRUPTED
    assert [one.title for one in pending()] == ["Refund 49.90 for order 1042"]
    assert gateway().moved("refund") == []


def test_approved_it_is_paid_once_and_told(begin, lead, work_off):
    run = begin()
    decide(approval_id=pending()[0].pk, verdict="approve", user=lead)

    run = work_off(run)

    assert run.status == RunStatus.COMPLETED
    [paid] = gateway().journal.entries()
    assert (paid["kind"], paid["amount"]) == ("refund", "49.90")
    assert "refund of 49.90 EUR" in answer_of(run)
    assert paid["answer"]["id"] in answer_of(run)


def test_the_gateway_is_given_the_calls_own_key(begin, lead, work_off):
    run = begin()
    decide(approval_id=pending()[0].pk, verdict="approve", user=lead)
    work_off(run)

    [paid] = gateway().journal.entries()
    assert paid["key"] == ToolExecution.objects.get(tool="refund").call_key


def test_declined_nothing_is_paid_and_the_answer_tells_the_reason(begin, lead, work_off):
    run = begin()
    decide(approval_id=pending()[0].pk, verdict="decline", user=lead, reason="It was used for soup")

    run = work_off(run)

    assert run.status == RunStatus.COMPLETED
    assert gateway().journal.entries() == []
    assert "declined" in answer_of(run)
    assert "It was used for soup" in answer_of(run)
    assert "Nothing was refunded" in answer_of(run)


def test_an_edited_amount_is_what_is_paid_and_told(begin, lead, work_off):
    run = begin()
    decide(approval_id=pending()[0].pk, verdict="approve", user=lead, arguments={"amount": "20.00"})

    run = work_off(run)

    assert [paid["amount"] for paid in gateway().moved("refund")] == ["20.00"]
    assert "20.00 EUR" in answer_of(run)
    assert "instead of the 49.90 EUR" in answer_of(run)


def test_a_small_refund_needs_nobody(begin):
    run = begin("please refund order 1044")

    assert run.status == RunStatus.COMPLETED
    assert [paid["amount"] for paid in gateway().moved("refund")] == ["7.50"]
    assert pending() == []


def test_a_refund_that_the_gateway_refuses_is_told_as_such(begin, lead, work_off):
    run = begin("please refund order 1050")
    decide(approval_id=pending()[0].pk, verdict="approve", user=lead)

    run = work_off(run)

    assert run.status == RunStatus.COMPLETED
    assert "did not go through" in answer_of(run)
    assert "card that paid was closed" in answer_of(run)


def test_an_unknown_order_is_told_as_such(begin):
    assert "I find no order 9999" in answer_of(begin("please refund order 9999"))


def test_the_same_words_in_a_later_turn_are_another_refund_that_is_asked_anew(
    begin, lead, sam, work_off
):
    run = begin()
    decide(approval_id=pending()[0].pk, verdict="approve", user=lead)
    run = work_off(run)

    again = start_run(graph="support", input="refund order 1042", thread_id=run.thread_id, user=sam)
    work_off(again)

    [asked] = pending()
    assert asked.title == "Refund 49.90 for order 1042"
    assert len(gateway().moved("refund")) == 1


def test_the_seeds_purchase_charges_once(begin, sam, work_off):
    run = begin("Please.", graph="purchase")
    assert run.status == RunStatus.INTERRUPTED
    assert len(gateway().journal.entries()) == 1

    resume_run(interrupt_id=Interrupt.objects.get(status="open").pk, value=True, user=sam)
    run = work_off(run)

    assert run.status == RunStatus.COMPLETED
    assert len(gateway().journal.entries()) == 1
    assert "Confirmed" in answer_of(run)


class Provider:
    """A context that remembers which model was asked, and answers nothing of interest."""

    def __init__(self):
        self.asked = []

    async def complete(self, model, messages, tools, **_):
        self.asked.append((model, messages[0].role, [tool.name for tool in tools]))
        return Message.assistant("Hello.")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"OPENAI_API_KEY": "sk-test"}, "openai:gpt-5-mini"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "openai:gpt-5-mini"),
        ({"OPENAI_API_KEY": "sk-test", "DEMO_MODEL": "openai:big"}, "openai:big"),
        ({"DEMO_MODEL": "anthropic:claude-opus-5"}, "anthropic:claude-opus-5"),
    ],
)
async def test_where_a_provider_is_reached_the_support_desk_asks_a_real_model(
    settings, given, asked
):
    for name, value in given.items():
        setattr(settings, name, value)
    provider = Provider()

    await support_desk().nodes["model"](State(messages=[Message.user("hi")]), provider)

    assert provider.asked == [(asked, "system", ["lookup_order", "refund", "send_receipt"])]


def test_without_a_provider_the_support_desk_is_scripted():
    assert provider_model() == ""
