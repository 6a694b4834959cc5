"""The one door: what a decision does, and what it refuses."""

import pytest

from agentruntime.graph import ApprovalRule, Message, ToolCall, create_agent, register, tool
from agentruntime.graph.registry import unregister
from agentruntime.lifecycle import start_run
from agentruntime.models import Interrupt, Run
from agentruntime.models import Message as Row
from approvals.decide import decide
from approvals.exceptions import (
    AlreadyDecided,
    ApprovalNotFound,
    DigestMismatch,
    DigestMissing,
    InvalidEdit,
    InvalidReason,
    NotAllowed,
    UnknownVerdict,
)
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_yes_lets_exactly_the_call_that_was_shown_run_once(ask, bob, work, shop, answer_of):
    approval = ask()
    assert (approval.status, shop.refunds) == ("pending", [])
    decision = decide(approval_id=approval.pk, verdict="approve", user=bob, digest=approval.digest)
    work()
    approval.refresh_from_db()
    assert (approval.status, approval.outcome) == ("approved", "executed")
    assert shop.refunds == [{"order_id": "1042", "amount": "30.00", "reason": "broken"}]
    assert decision.digest == decision.shown_digest == approval.digest
    assert Run.objects.get(pk=approval.run_id).status == "completed"
    assert "30.00" in answer_of(approval)


def test_a_no_runs_nothing_and_the_agent_is_told_the_reason(ask, bob, work, shop, answer_of):
    approval = ask()
    decide(approval_id=approval.pk, verdict="decline", user=bob, reason="It was opened.")
    work()
    approval.refresh_from_db()
    assert (approval.status, approval.outcome, shop.refunds) == ("declined", "not_executed", [])
    assert "It was opened." in answer_of(approval)


def test_an_edit_runs_in_place_of_what_was_asked_and_both_are_kept(ask, bob, work, shop, answer_of):
    approval = ask()
    decision = decide(
        approval_id=approval.pk, verdict="approve", user=bob, digest=approval.digest,
        arguments={"amount": "20.00"},
    )  # fmt: skip
    work()
    after = Approval.objects.get(pk=approval.pk)
    assert [one["amount"] for one in shop.refunds] == ["20.00"]
    assert after.asked_arguments["amount"] == "30.00"
    assert after.arguments["amount"] == "20.00"
    assert decision.arguments == after.arguments
    assert (decision.shown_digest, decision.digest) == (approval.digest, after.digest)
    assert after.digest != after.asked_digest
    assert after.editor == bob
    assert "20.00" in answer_of(approval)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"amount": None}, {"amount": "much"}, {"order_id": "1"}, {"new": 1}, [], "x",
     {"amount": "20.00", "reason": "other"}],
)  # fmt: skip
def test_an_edit_that_breaks_the_schema_or_the_rule_decides_nothing(ask, bob, arguments):
    approval = ask()
    with pytest.raises(InvalidEdit):
        decide(approval_id=approval.pk, verdict="approve", user=bob, arguments=arguments)
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert not Decision.objects.exists()


def test_arguments_that_change_nothing_are_no_edit(ask, bob):
    approval = ask()
    whole = {"order_id": "1042", "amount": "30.00", "reason": "broken"}
    decision = decide(approval_id=approval.pk, verdict="approve", user=bob, arguments=whole)
    assert decision.arguments is None


def test_an_equal_repeat_answers_with_the_stored_decision(ask, bob):
    approval = ask()
    request = {"approval_id": approval.pk, "verdict": "approve", "user": bob, "reason": "fine"}
    first = decide(**request, digest=approval.digest)
    assert decide(**request, digest=approval.digest) == first
    assert Decision.objects.count() == 1


def test_an_equal_repeat_of_an_edit_answers_with_the_stored_decision(ask, bob):
    approval = ask()
    request = {"approval_id": approval.pk, "verdict": "approve", "user": bob,
               "digest": approval.digest, "arguments": {"amount": "20.00"}}  # fmt: skip
    assert decide(**request) == decide(**request)
    with pytest.raises(AlreadyDecided):
        decide(**request | {"arguments": {"amount": "10.00"}})


def test_whoever_comes_second_is_told_who_when_and_what(ask, bob, person):
    carol = person("carol", "approvals.decide_refund")
    approval = ask()
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    with pytest.raises(AlreadyDecided) as refused:
        decide(approval_id=approval.pk, verdict="decline", user=carol)
    assert refused.value.by == "bob"
    assert refused.value.verdict == "approve"
    assert "bob approved this at 2" in str(refused.value)


def test_the_digest_of_another_call_decides_nothing(ask, bob):
    approval = ask()
    with pytest.raises(DigestMismatch):
        decide(approval_id=approval.pk, verdict="approve", user=bob, digest="0" * 64)
    with pytest.raises(DigestMissing):
        decide(approval_id=approval.pk, verdict="approve", user=bob, door="rest")
    assert Interrupt.objects.get(pk=approval.interrupt_id).status == "open"


@pytest.mark.parametrize("reason", ["a\x00b", "\ud800", "x" * 2001])
def test_a_reason_that_cannot_be_stored_decides_nothing(ask, bob, reason):
    approval = ask()
    with pytest.raises(InvalidReason):
        decide(approval_id=approval.pk, verdict="decline", user=bob, reason=reason)
    assert not Decision.objects.exists()


def test_unknown_words_and_unknown_ids_are_refused_by_name(ask, bob):
    approval = ask()
    with pytest.raises(UnknownVerdict):
        decide(approval_id=approval.pk, verdict="maybe", user=bob)
    with pytest.raises(ApprovalNotFound):
        decide(approval_id="nonsense", verdict="approve", user=bob)


def test_the_requester_never_decides_unless_it_is_allowed_by_name(ask, person, settings):
    dora = person("dora", "approvals.decide_refund")
    approval = ask(user=dora)
    with pytest.raises(NotAllowed):
        decide(approval_id=approval.pk, verdict="approve", user=dora)
    settings.APPROVALS = {"REQUESTER_MAY_DECIDE": ["dora"]}
    decision = decide(approval_id=approval.pk, verdict="approve", user=dora)
    assert decision.rights["own_request"] is True


def test_a_superuser_needs_the_right_like_everybody(ask, person):
    root = person("root", is_superuser=True)
    approval = ask()
    with pytest.raises(NotAllowed, match="superuser"):
        decide(approval_id=approval.pk, verdict="approve", user=root)


@pytest.mark.usefixtures("_work_by_hand")
def test_a_call_that_was_declined_is_not_asked_about_again_in_its_run(shop, bob, alice, work):
    def stubborn(messages, tools):
        """Wants the same refund again after each no, then another; then says what it heard."""
        said = [one.content for one in messages if one.role == "tool"]
        if len(said) == 4:
            return Message.assistant(" | ".join(said))
        order = "1042" if len(said) < 3 else "7"
        call = ToolCall(id="again", name="refund", arguments={"order": order})
        return Message.assistant(tool_calls=[call])

    @tool(approval=ApprovalRule(permission="approvals.decide_refund"))
    def refund(order: str) -> str:
        shop.refunds.append(order)
        return "done"

    register("stubborn", create_agent(model=stubborn, tools=[refund]))
    try:
        run = start_run(graph="stubborn", input="please", user=alice)
        work()
        first = Approval.objects.get()
        decide(approval_id=first.pk, verdict="decline", user=bob, reason="too much")
        work()
        other = Approval.objects.get(status="pending")
        assert (other.arguments, Approval.objects.count()) == ({"order": "7"}, 2)
        decide(approval_id=other.pk, verdict="approve", user=bob)
        work()
        said = Row.objects.filter(thread_id=run.thread_id).order_by("ordinal").last().content
        assert said.count("declined by bob: too much") == 3
        assert said.count("nobody was asked again") == 2
        assert shop.refunds == ["7"]
    finally:
        unregister("stubborn")
