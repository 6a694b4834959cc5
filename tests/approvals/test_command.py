"""`manage.py decide`: what a shell says and how it ends."""

import io

import pytest
from django.core.management import CommandError, call_command

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
def test_what_it_refuses_it_says_in_a_sentence(ask, bob, arguments, told):
    approval = ask()
    with pytest.raises(CommandError, match=told):
        decide(approval.pk, *arguments)
    assert Approval.objects.get().status == "pending"


def test_a_second_one_is_told_who_was_first(ask, bob, person):
    person("carol", "approvals.decide_refund")
    approval = ask()
    decide(approval.pk, "approve", "--user", "bob")
    with pytest.raises(CommandError, match=r"bob approved this at .*\[APPROVAL_DECIDED_001\]"):
        decide(approval.pk, "decline", "--user", "carol")
