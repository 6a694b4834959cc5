"""Opposite decisions at once, cancel and approve at once: exactly one outcome each."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from rest_framework.test import APIClient

from agentruntime.lifecycle import stop_run
from approvals.decide import decide
from approvals.exceptions import AlreadyDecided, ApprovalError
from approvals.models import Decision

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
# One writer at a time leaves less to try.
ROUNDS = 200 if connection.vendor == "postgresql" else 40


def at_once(*works):
    """Run each in a thread of its own, starting together; return what each returned or raised."""
    gate = threading.Barrier(len(works))

    def run(work):
        try:
            gate.wait(10)
            return work()
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def by_python(approval, verdict, user):
    return decide(
        approval_id=approval.pk, verdict=verdict, user=user, digest=approval.digest, reason="r"
    )


def by_rest(approval, verdict, user):
    client = APIClient()
    client.force_authenticate(user)
    body = {"digest": approval.digest, "reason": "r"}
    answer = client.post(f"/api/v1/approvals/{approval.pk}/{verdict}/", body, format="json")
    assert answer.status_code in (200, 409), answer.content
    return answer


def by_shell(approval, verdict, user):
    try:
        call_command("decide", str(approval.pk), verdict, "--user", user.username, "--reason", "r")
    except CommandError as error:
        return error


DOORS = (by_python, by_rest, by_shell)


def test_opposite_decisions_through_different_doors_have_one_outcome(ask, bob, person, work, shop):
    carol = person("carol", "approvals.decide_refund")
    for number in range(ROUNDS):
        approval = ask(order_id=str(number))
        yes, no = DOORS[number % 3], DOORS[(number + 1) % 3]
        at_once(
            lambda yes=yes, approval=approval: yes(approval, "approve", bob),
            lambda no=no, approval=approval: no(approval, "decline", carol),
        )
        decision = Decision.objects.get(approval=approval)
        approval.refresh_from_db()
        assert approval.status == {"approve": "approved", "decline": "declined"}[decision.verdict]
        work()
        expected = 1 if decision.verdict == "approve" else 0
        assert len([one for one in shop.refunds if one["order_id"] == str(number)]) == expected
    assert Decision.objects.count() == ROUNDS


def test_cancel_and_approve_at_once_have_one_outcome(ask, bob, work, shop):
    for number in range(ROUNDS):
        approval = ask(order_id=str(number))
        at_once(
            lambda approval=approval: by_python(approval, "approve", bob),
            lambda approval=approval: stop_run(run_id=approval.run_id),
        )
        work()
        approval.refresh_from_db()
        made = [one for one in shop.refunds if one["order_id"] == str(number)]
        told = (approval.status, approval.outcome, len(made), approval.decisions.count())
        assert told in {
            ("approved", "executed", 1, 1),
            ("approved", "not_executed", 0, 1),
            ("cancelled", "not_executed", 0, 0),
        }, told


def test_a_hundred_clicks_are_one_decision_and_everybody_else_is_told_whose(
    ask, person, work, shop
):
    people = [person(f"p{number}", "approvals.decide_refund") for number in range(10)]
    approval = ask()
    clicks = [lambda user=user: by_python(approval, "approve", user) for user in people * 10]
    answers = at_once(*clicks)
    decision = Decision.objects.get()
    won = [one for one in answers if one == decision]
    lost = [one for one in answers if isinstance(one, AlreadyDecided)]
    assert len(won) == 10  # the same person's repeats are answered with the stored decision
    assert len(lost) == 90
    assert {one.by for one in lost} == {decision.by}
    work()
    assert len(shop.refunds) == 1


def test_two_yes_at_once_where_two_must_agree_are_one_execution(ask, person, settings, work, shop):
    settings.APPROVALS = {"RULES": {"refund": {"approvers": 2}}}
    people = [person(f"p{number}", "approvals.decide_refund") for number in range(3)]
    for number in range(20):
        approval = ask(order_id=str(number))
        at_once(*(lambda user=user, a=approval: by_python(a, "approve", user) for user in people))
        work()
        assert len([one for one in shop.refunds if one["order_id"] == str(number)]) == 1
        assert Decision.objects.filter(approval=approval).count() == 2


@pytest.mark.database("postgresql", why="SQLite's loser waits at BEGIN, which nobody sees")
def test_the_loser_waits_for_the_winner_and_reads_what_was_committed(ask, bob, person):
    carol = person("carol", "approvals.decide_refund")
    approval = ask()
    started, answers = threading.Event(), []

    def lose():
        started.set()
        try:
            answers.append(by_python(approval, "decline", carol))
        except ApprovalError as error:
            answers.append(error)
        connections.close_all()

    with transaction.atomic():
        by_python(approval, "approve", bob)
        thread = threading.Thread(target=lose)
        thread.start()
        started.wait(5)
        thread.join(0.5)
        assert thread.is_alive()
        assert answers == []
    thread.join(10)
    assert isinstance(answers[0], AlreadyDecided)


def test_decisions_on_many_threads_keep_one_unbroken_chain(ask, bob, work):
    approvals = [ask(order_id=str(number)) for number in range(12)]
    at_once(*(lambda a=a: by_python(a, "approve", bob) for a in approvals))
    call_command("verify_decisions")
    assert Decision.objects.count() == 12
