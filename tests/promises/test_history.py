"""The conversation that a model is given, whatever happened before: whole, once, in its order."""

import threading

import pytest

from agentruntime.graph import Message, create_agent, tool
from agentruntime.lifecycle import retry_run, start_run, stop_run
from agentruntime.models import Message as StoredMessage
from tests.agents import asks_for, call, registered
from tests.lifecycle.people import decided
from tests.llm.payloads import check_messages


def listening(model):
    """The model, and every conversation that it was given."""
    given = []

    def listen(messages, tools):
        given.append(list(messages))
        return model(messages, tools)

    return listen, given


def stored(run):
    rows = StoredMessage.objects.filter(thread=run.thread_id).order_by("ordinal")
    return [str(row.id) for row in rows]


def results(run):
    rows = StoredMessage.objects.filter(thread=run.thread_id, role="tool").order_by("ordinal")
    return {row.tool_call_id: row.content for row in rows}


@pytest.fixture
def shop():
    """Tools of which two need a person; gives them and what ran."""
    ran = []

    @tool(approval=True)
    def delete(what: str) -> str:
        ran.append(f"delete {what}")
        return "deleted"

    @tool(approval=True)
    def mail(to: str) -> str:
        ran.append(f"mail {to}")
        return "mailed"

    @tool
    def calc(n: int) -> str:
        ran.append(f"calc {n}")
        return str(n * 2)

    return [delete, mail, calc], ran


MIXED = [
    call("delete", "d", what="all"),
    call("mail", "m", to="ann"),
    call("calc", "c", n=21),
]


@pytest.mark.parametrize("decline_first", [True, False])
def test_of_a_mixed_turn_each_call_has_the_one_result_that_is_true(drive, shop, decline_first):
    tools, ran = shop
    model, given = listening(asks_for(MIXED))
    with registered(create_agent(model=model, tools=tools)) as name:
        run = drive(name)
        assert (run.status, ran) == ("interrupted", ["calc 21"])
        order = [("decline", {"what": "all"}), ("approve", {"to": "ann"})]
        for verdict, arguments in order if decline_first else order[::-1]:
            decided(verdict, **arguments)
            run = drive(run=run)
    assert (run.status, ran) == ("completed", ["calc 21", "mail ann"])
    told = results(run)
    assert list(told) == ["d", "m", "c"]
    assert "declined" in told["d"].lower()
    assert (told["m"], told["c"]) == ("mailed", "42")
    check_messages(given[-1])


@pytest.mark.parametrize("reason", ["", "It was opened."])
def test_after_a_no_the_thread_takes_another_message(drive, shop, reason):
    from approvals.decide import decide
    from approvals.models import Approval

    tools, ran = shop
    model, given = listening(asks_for([call("delete", "d", what="all")]))
    with registered(create_agent(model=model, tools=tools)) as name:
        run = drive(name)
        approval = Approval.objects.get(status="pending")
        decide(approval_id=approval.pk, verdict="decline", user=lead(), reason=reason)
        run = drive(run=run)
        again = drive(name, "and now?", thread_id=run.thread_id)
        approval.refresh_from_db()
    assert (run.status, ran, approval.status) == ("completed", [], "declined")
    assert "declined" in results(run)["d"].lower()
    assert reason in results(run)["d"]
    assert again.status == "interrupted", "another turn may ask again, and a person is asked anew"
    assert [str(one.id) for one in given[-1]] == stored(run)[: len(given[-1])]


def lead():
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    user = get_user_model().objects.create_user("lead", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


def test_what_a_model_is_given_after_a_pause_is_what_is_stored_each_message_once(drive, shop):
    tools, _ = shop
    model, given = listening(asks_for(MIXED))
    with registered(create_agent(model=model, tools=tools)) as name:
        run = drive(name)
        decided(what="all")
        run = drive(run=run)
        decided(to="ann")
        run = drive(run=run)
        drive(name, "thanks", thread_id=run.thread_id)
    for conversation in given:
        idents = [str(one.id) for one in conversation]
        assert idents == stored(run)[: len(idents)]
        check_messages(conversation)
    assert [one.role for one in given[1]] == ["user", "assistant", "tool", "tool", "tool"]


def test_a_run_that_is_retried_twice_repeats_no_message(drive):
    away = [True]

    def model(messages, tools):
        if away:
            raise ConnectionError("the provider is away")
        return Message.assistant("here")

    listen, given = listening(model)
    with registered(create_agent(model=listen)) as name:
        run = drive(name)
        for _ in range(2):
            assert run.status == "failed"
            if len(given) == 2:
                away.clear()
            retry_run(run_id=run.pk)
            run = drive(run=run)
    assert (run.status, len(given)) == ("completed", 3)
    assert [[one.content for one in conversation] for conversation in given] == [["hello"]] * 3
    assert [one.content for one in StoredMessage.objects.order_by("ordinal")] == ["hello", "here"]


def test_a_stop_between_two_calls_of_a_turn_leaves_a_conversation_that_can_go_on(drive, look):
    """One call has ended, one is at work, one has not begun: a stop comes, then a message."""
    begun, go_on = threading.Event(), threading.Event()

    @tool(sequential=True)
    def first() -> str:
        return "done"

    @tool(sequential=True)
    def second() -> str:
        begun.set()
        assert go_on.wait(20)
        return "late"

    @tool(sequential=True)
    def third() -> str:
        raise AssertionError("it was begun after the stop")

    asks = asks_for([call("first", "a"), call("second", "b"), call("third", "c")])
    model, given = listening(
        lambda messages, tools: (
            Message.assistant("here")
            if messages[-1].content == "hello again"
            else asks(messages, tools)
        )
    )
    with registered(create_agent(model=model, tools=[first, second, third])) as name:
        run = start_run(graph=name, input="hello")
        stopper = threading.Thread(target=stop_when, args=(begun, run, go_on))
        stopper.start()
        run = drive(run=run)
        stopper.join()
        assert run.status == "stopped"
        told = results(run)
        assert list(told) == ["a", "b", "c"]
        assert told["a"] == "done"
        assert "not run: the run was stopped" in told["c"]
        again = drive(name, "hello again", thread_id=run.thread_id)
    assert again.status == "completed"
    check_messages(given[-1])


def stop_when(begun, run, go_on):
    from django.db import connections

    assert begun.wait(20)
    stop_run(run_id=run.pk)
    connections.close_all()
    go_on.set()
