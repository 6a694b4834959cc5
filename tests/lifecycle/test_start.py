"""Starting: one transaction, idempotent, and nothing written for what is refused."""

import threading

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction

from agentruntime.exceptions import (
    IdempotencyConflict,
    InvalidConfig,
    InvalidInput,
    ThreadBusy,
    ThreadNotFound,
    UnknownGraph,
)
from agentruntime.graph import END, START, Message, State, StateGraph, tool
from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.settings import deadline_seconds
from agentruntime.models import Message as MessageRow
from agentruntime.models import Run, Thread
from agentruntime.signals import noticed
from tests.agents import agent, call, registered


class Ticket(State):
    order_id: str = ""


@pytest.fixture
def graph():
    built = StateGraph(Ticket)
    built.add_node("answer", lambda state: Message.assistant(f"order {state.order_id}"))
    built.add_edge(START, "answer").add_edge("answer", END)
    with registered(built) as name:
        yield name


def test_a_started_run_is_queued_with_its_message_and_a_checkpoint(graph):
    run = start_run(graph=graph, input={"messages": ["hi"], "order_id": "7"})

    assert run.status == "queued"
    thread = Thread.objects.get(pk=run.thread_id)
    assert (thread.head_version, thread.message_count) == (1, 1)
    checkpoint = thread.checkpoints.get()
    assert (checkpoint.version, checkpoint.next_node, checkpoint.state) == (
        1,
        "answer",
        {"order_id": "7"},
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", "no message"),
        (5, "neither text nor an object"),
        ({"nope": 1}, "nope"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, r"messages\[0\]"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, r"messages\[0\]"),
        ({"messages": ["a\x00b"]}, "NUL"),
        ({"messages": ["\ud800"]}, "surrogate"),
        ({"messages": ["x"], "order_id": ["not", "text"]}, "order_id"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_written(graph, given, named):
    with pytest.raises(InvalidInput, match=named):
        start_run(graph=graph, input=given)
    assert not Thread.objects.exists()


def test_unknown_graphs_threads_and_config_keys_are_refused(graph):
    with pytest.raises(UnknownGraph, match="testing"):
        start_run(graph="nope", input="x")
    with pytest.raises(ThreadNotFound):
        start_run(graph=graph, input="x", thread_id="00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidConfig, match="thread_id"):
        start_run(graph=graph, input="x", config={"thread_id": "other"})
    with pytest.raises(InvalidConfig, match="recursion_limit"):
        start_run(graph=graph, input="x", config={"recursion_limit": "many"})


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_timeout_that_no_clock_can_count_is_no_number(graph, digits):
    seconds = 10**digits
    told = []

    def note(event, facts, **_):
        told.append((event, facts["name"]))

    noticed.connect(note)
    try:
        run = start_run(graph=graph, input="x", config={"tool_timeout": seconds})
        for config in (run.config, {"tool_timeout": seconds}):
            assert deadline_seconds(config, "tool_timeout", 7.0) == 7.0
    finally:
        noticed.disconnect(note)
    assert told == [("timeout is no number, the default holds", "tool_timeout")] * 2


def test_somebody_elses_thread_is_not_found(graph):
    ann = get_user_model().objects.create_user("ann")
    bob = get_user_model().objects.create_user("bob")
    run = start_run(graph=graph, input="x", user=ann)
    with pytest.raises(ThreadNotFound):
        start_run(graph=graph, input="x", user=bob, thread_id=run.thread_id)


def test_a_busy_thread_refuses_a_second_run_and_says_which_has_it(graph):
    run = start_run(graph=graph, input="x")
    with pytest.raises(ThreadBusy, match=str(run.pk)):
        start_run(graph=graph, input="y", thread_id=run.thread_id)
    assert MessageRow.objects.filter(thread=run.thread_id).count() == 1


def test_the_same_key_starts_one_run_also_for_five_at_once(graph):
    ids, errors = [], []

    def start():
        try:
            ids.append(start_run(graph=graph, input="x", idempotency_key="k").pk)
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=start) for _ in range(5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert errors == []
    assert len(ids) == 5
    assert len(set(ids)) == Run.objects.count() == 1
    again = start_run(graph=graph, input="x", idempotency_key="k")
    assert again.was_started_before
    with pytest.raises(IdempotencyConflict):
        start_run(graph=graph, input="another", idempotency_key="k")


def test_a_key_is_scoped_to_its_user(graph):
    ann = get_user_model().objects.create_user("ann")
    first = start_run(graph=graph, input="x", idempotency_key="k")
    second = start_run(graph=graph, input="x", idempotency_key="k", user=ann)
    assert first.pk != second.pk


def test_a_message_id_that_is_taken_is_refused(graph):
    def said(text, ident="mine"):
        return {"messages": [{"role": "user", "content": text, "id": ident}]}

    twice = {"messages": [*said("a")["messages"], *said("b")["messages"]]}
    with pytest.raises(InvalidInput, match="is taken"):
        start_run(graph=graph, input=twice)
    assert not Thread.objects.exists()
    run = start_run(graph=graph, input=said("a"), idempotency_key="k")
    Run.objects.filter(pk=run.pk).update(status="completed", finished_at=run.queued_at)
    with pytest.raises(InvalidInput, match="is taken"):
        start_run(graph=graph, input=said("b"), thread_id=run.thread_id)
    assert start_run(graph=graph, input=said("a"), idempotency_key="k").pk == run.pk
    assert start_run(graph=graph, input=said("a")).pk != run.pk, "it counts within its thread"


def test_a_rolled_back_start_leaves_nothing_and_rings_nobody(graph, monkeypatch):
    rung = []
    monkeypatch.setattr("agentruntime.dispatch.ring", rung.append)
    with transaction.atomic():
        start_run(graph=graph, input="x")
        transaction.set_rollback(True)
    assert rung == []
    assert not Run.objects.exists()
    with transaction.atomic():
        run = start_run(graph=graph, input="x")
        assert rung == []
    assert rung == [run.pk]


def test_a_message_that_stands_in_line_leaves_the_calls_before_it_alone(drive, look):
    @tool(approval=True)
    def pay(to: str) -> str:
        return "paid"

    with agent([pay], [call("pay", to="ann")]) as name:
        run = drive(name)
        Thread.objects.filter(pk=run.thread_id).update(on_busy="queue")
        start_run(graph=name, input="and more", thread_id=run.thread_id)
        assert [row.status for row in look.calls(run)] == ["interrupted"]
