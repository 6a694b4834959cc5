"""`verify_history` asks of approvals too: each planted fault is found, by its name."""

import pytest
from django.utils import timezone

from agentruntime.invariants import find_violations, invariants
from agentruntime.models import Interrupt, ToolExecution
from approvals.decide import decide
from approvals.immutability import unprotected
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)
LATER = timezone.timedelta(hours=1)


@pytest.fixture
def story(ask, bob, work):
    """One approval that was approved and carried out, and one that waits."""
    done, waiting = ask(), ask(order_id="1043")
    decide(approval_id=done.pk, verdict="approve", user=bob)
    work()
    return Approval.objects.get(pk=done.pk), waiting


def lose_it(done, waiting):
    waiting.delete()


def close_one_side(done, waiting):
    Approval.objects.filter(pk=waiting.pk).update(status="cancelled", closed_at=timezone.now())


def change_the_verdict(done, waiting):
    Decision.objects.filter(approval=done).update(verdict="decline")


def change_the_call(done, waiting):
    Approval.objects.filter(pk=done.pk).update(digest="0" * 64)


def tell_the_run_otherwise(done, waiting):
    row = Interrupt.objects.get(approval=done)
    Interrupt.objects.filter(pk=row.pk).update(answer={**row.answer, "digest": "0" * 64})


def start_too_early(done, waiting):
    ToolExecution.objects.filter(pk=done.tool_execution_id).update(
        first_started_at=timezone.now() - LATER
    )


def decide_ones_own(done, waiting):
    Approval.objects.filter(pk=done.pk).update(requester_id=done.decisions.get().user_id)


def want_two(done, waiting):
    decision = done.decisions.get()
    Decision.objects.filter(pk=decision.pk).update(rule={**decision.rule, "approvers": 2})


PLANTED = [
    ("a gated question is before people", lose_it),
    ("an approval waits with its question", close_one_side),
    ("one decision, and it was kept to", change_the_verdict),
    ("one decision, and it was kept to", change_the_call),
    ("the run heard what was decided", tell_the_run_otherwise),
    ("a call starts after its decision", start_too_early),
    ("nobody decides alone what they asked for", decide_ones_own),
    ("as many agree as must", want_two),
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_a_planted_fault_is_found(story, name, plant):
    assert list(find_violations()) == []
    with unprotected():
        plant(*story)
    assert name in {one.invariant for one in find_violations()}


def test_the_runtime_finds_what_an_app_adds():
    assert {name for name, _ in PLANTED} <= {one.name for one in invariants()}
