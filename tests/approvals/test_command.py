"""`manage.py decide`: what a shell says and how it ends."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.loop import execute
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)


def decide(*arguments):
    out = io.StringIO()
    call_command("decide", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_it_decides_and_says_so(ask, bob, work, shop):
    approval = ask()
    assert decide(approval.pk, "approve", "--user", "bob") == f"bob approved {approval.pk}\n"
    work()
    assert len(shop.refunds) == 1
    assert Decision.objects.get().door == "shell"


def test_it_edits(ask, bob, work, shop):
    decide(ask().pk, "approve", "--user", "bob", "--arguments", '{"amount": "7.00"}')
    work()
    assert shop.refunds[0]["amount"] == "7.00"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["approve", "--user", "nobody"], "no user"),
        (["approve", "--user", "bob", "--arguments", "{"], "no JSON"),
        (["approve", "--user", "bob", "--arguments", "[]"], "an object was expected"),
        (["approve", "--user", "bob", "--arguments", '{"order_id": "1"}'], "may not be changed"),
        (["approve", "--user", "bob", "--digest", "0" * 64], "is not what is asked now"),
        (["maybe", "--user", "bob"], "invalid choice"),
        (["approve"], "required"),
    ],
)
def test_what_it_refuses_it_says_in_a_sentence(ask, bob, arguments, told, caplog):
    approval = ask()
    with pytest.raises(CommandError, match=told):
        decide(approval.pk, *arguments)
    assert "Decision refused" not in caplog.text  # said once, by the command
    assert Approval.objects.get().status == "pending"


def test_a_second_one_is_told_who_was_first(ask, bob, person):
    person("carol", "approvals.decide_refund")
    approval = ask()
    decide(approval.pk, "approve", "--user", "bob")
    with pytest.raises(CommandError, match=r"bob approved this at .*\[APPROVAL_DECIDED_001\]"):
        decide(approval.pk, "decline", "--user", "carol")


@pytest.mark.parametrize(("user", "code"), [("nobody", 2), ("alice", 1)])
def test_it_ends_with_2_for_a_slip_and_with_1_for_a_refusal(ask, alice, user, code):
    with pytest.raises(CommandError) as refused:
        decide(ask().pk, "approve", "--user", user)
    assert refused.value.returncode == code


def test_a_followed_run_that_pauses_says_what_to_do(agent, alice, monkeypatch):
    def started(**options):
        run = start_run(**options)
        execute(run.pk)
        return run

    monkeypatch.setattr("agentruntime.management.commands.start_run.start_run", started)
    call = [{"tool": "refund", "arguments": {"order_id": "1042", "amount": "30.00"}}]
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("start_run", agent, message=json.dumps(call), follow=True, stdout=out)
    assert ended.value.code == 3
    approval = Approval.objects.get()
    waits, go_on = out.getvalue().splitlines()[-2:]
    assert f"Refund 30.00 for 1042 (approval {approval.interrupt_id})" in waits
    assert f"manage.py decide {approval.pk} approve|decline --user NAME" in go_on
