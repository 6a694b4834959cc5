"""Tools, models and callers that behave badly: nothing runs twice, nothing reaches others."""

import uuid
from decimal import Decimal

import pytest

from agentruntime.exceptions import InvalidInput
from agentruntime.graph import END, START, Message, State, StateGraph, ToolCall, once, tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Message as Row
from agentruntime.models import Run, ToolExecution
from tests.agents import agent, call, registered


def circular():
    made = {}
    made["self"] = made
    return made


def deep():
    made = []
    for _ in range(5000):
        made = [made]
    return made


def breaking():
    yield 1
    raise ValueError("half way")


@pytest.mark.parametrize(
    "value", [circular, deep, breaking, lambda: {"\ud800": 1}, lambda: {1: 2, "1": 3}, object]
)
def test_a_result_that_cannot_be_stored_costs_no_sibling_its_outcome(drive, look, value):
    charged = []

    def charge() -> str:
        charged.append(1)
        return "charged"

    def bad() -> object:
        return value()

    with agent([charge, bad], [call("charge", "1"), call("bad", "2")]) as name:
        run = drive(name)
    assert (run.status, charged) == ("completed", [1])
    assert [row.status for row in look.calls(run)] == ["succeeded", "succeeded"]
    assert look.calls(run)[1].error["code"] == "TOOL_RESULT_001"


def test_an_error_that_cannot_say_what_it_is_fails_its_call_alone(drive, look):
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    def bad() -> str:
        raise Silent

    with agent([bad], [call("bad")]) as name:
        run = drive(name)
    assert (run.status, look.calls(run)[0].status) == ("completed", "failed")


def test_a_message_id_from_outside_counts_in_its_own_thread_only(drive, look):
    taken = str(uuid.uuid4())
    with agent([], []) as name:
        first = drive(name, input={"messages": [{"role": "user", "content": "a", "id": taken}]})
        second = drive(name, input={"messages": [{"role": "user", "content": "b", "id": taken}]})
    assert {first.status, second.status} == {"completed"}
    assert not Row.objects.filter(pk=taken).exists()


def test_a_model_that_counts_its_messages_anew_does_not_stop_the_thread(drive):
    def model(messages, tools):
        return Message.assistant("hello", id="answer-1")

    from agentruntime.graph import create_agent

    with registered(create_agent(model=model)) as name:
        first = drive(name)
        again = drive(name, input="more", thread_id=first.thread_id)
    assert (first.status, again.status, again.error_detail) == ("completed", "completed", "")


def test_a_call_id_cannot_stand_for_a_memo(drive, look):
    ran = []

    def oncer() -> str:
        return once("n", lambda: (ran.append(1), "real")[1])

    def echo(x: str) -> str:
        return x

    calls = [ToolCall(id="c:once:n", name="echo", arguments={"x": "forged"}), call("oncer", "c")]
    with agent([oncer, echo], calls) as name:
        run = drive(name)
    assert (run.status, ran) == ("completed", [1])
    assert look.messages(run)[3] == ("tool", "real")


@pytest.mark.parametrize("ident", ["x" * 300, "a\nb"])
def test_call_ids_that_no_column_holds_are_replaced(drive, look, ident):
    def act() -> str:
        return "done"

    with agent([act], [call("act", ident), call("act", ident)]) as name:
        run = drive(name)
    assert run.status == "completed"
    assert all(len(row.call_key) < 300 for row in look.calls(run))


@pytest.mark.parametrize("amount", ["1E+99999999", "NaN"])
def test_an_amount_that_nobody_can_be_shown_goes_back_to_the_model(drive, look, amount):
    from agentruntime.graph import ApprovalRule

    @tool(approval=ApprovalRule(title="Pay {amount:.2f}", amount="amount"))
    def pay(amount: Decimal) -> str:
        return "paid"

    with agent([pay], [call("pay", amount=amount)]) as name:
        run = drive(name)
    assert (run.status, look.calls(run)[0].status) == ("completed", "failed")


def test_a_yes_is_checked_again_before_a_repeated_start(drive, look):
    from agentruntime.graph import ApprovalRule

    paid, closed = [], []

    @tool(
        effect="once",
        approval=ApprovalRule(recheck=lambda a: "the account is closed" if closed else None),
    )
    def pay() -> str:
        paid.append(1)
        raise ConnectionResetError("hung up")

    with agent([pay], [call("pay")]) as name:
        run = drive(name)
        approve(look.open(run)[0])
        run = drive(run=run)
        assert (run.status, paid) == ("interrupted", [1])
        closed.append(1)
        resume_run(interrupt_id=look.open(run)[0].pk, value={"outcome": "retry"})
        run = drive(run=run)
    assert (run.status, paid) == ("completed", [1])
    assert "the account is closed" in look.messages(run)[2][1]


@pytest.mark.parametrize("answer", [False, True, 0, ["closed"]])
def test_a_check_that_answers_neither_none_nor_a_reason_lets_nothing_start(drive, look, answer):
    from agentruntime.graph import ApprovalRule

    paid = []

    @tool(approval=ApprovalRule(recheck=lambda arguments: answer))
    def pay() -> str:
        paid.append(1)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = drive(name)
        approve(look.open(run)[0])
        run = drive(run=run)
    assert (run.status, paid) == ("completed", [])
    assert f"answered a {type(answer).__name__}" in look.messages(run)[2][1]


def approve(interrupt):
    """A lead says yes, through the one door."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    from approvals.decide import decide
    from approvals.models import Approval

    lead = get_user_model().objects.create_user("lead")
    lead.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    approval = Approval.objects.get(interrupt=interrupt)
    decide(approval_id=approval.pk, verdict="approve", user=lead, digest=approval.digest)


class Number(State):
    f: float = 0


def test_a_whole_number_is_a_float_too(drive):
    graph = StateGraph(Number)
    graph.add_node("n", lambda state: {"f": 1})
    graph.add_edge(START, "n").add_edge("n", END)
    with registered(graph) as name:
        assert drive(name).status == "completed"


def test_a_message_that_cannot_be_stored_is_told_by_name(drive):
    from agentruntime.graph import create_agent

    def model(messages, tools):
        return Message.assistant("x", extra={"a": float("inf")})

    with registered(create_agent(model=model)) as name:
        run = drive(name)
    assert (run.status, "message.extra.a" in run.error_detail) == ("failed", True)


def test_an_input_that_is_no_message_is_refused():
    with agent([], []) as name, pytest.raises(InvalidInput):
        start_run(graph=name, input={"messages": [{"role": "user", "content": "x", "id": "a\0"}]})
    assert not Run.objects.exists()
    assert not ToolExecution.objects.exists()
