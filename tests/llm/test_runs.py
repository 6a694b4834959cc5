"""Whole runs against the pretend provider: stored between the steps, one truth per call."""

from __future__ import annotations

import json
import threading

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

from agentruntime import llm
from agentruntime.graph import create_agent, interrupt, tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Interrupt, Message, ToolExecution
from agentruntime.signals import progressed
from tests.agents import asks_for, call, registered
from tests.llm.conftest import KEY
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Call, Cut, Failure
from tests.llm.scripts import demanding, messages_of, served

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _by_hand():
    with override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}):
        yield


def asking(provider: FakeProvider, **limits):
    """A model function that asks the pretend provider, streaming."""
    made = {"openai": llm.Provider(base_url=provider.openai_url, api_key=KEY)}
    options = llm.ModelOptions(providers=made, first_wait=0.01, **limits)

    async def model(messages, tools):
        try:
            return await llm.complete(
                "openai:pretend", messages, tools, options=options, on_delta=lambda text: None
            )
        finally:
            # The loop of the runtime outlives the test; its sockets must not.
            await llm.close_clients()

    return model


def drive(name=None, run=None):
    run = run or start_run(graph=name, input="hello")

    # In a thread of its own, as another worker would: it shares nothing but the database.
    def work():
        try:
            execute(run.pk)
        finally:
            connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    run.refresh_from_db()
    return run


def messages(run):
    rows = Message.objects.filter(thread=run.thread_id).order_by("ordinal")
    return [(row.role, row.content) for row in rows]


@tool
def look(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}"


@tool
def confirm(order_id: str) -> str:
    """Ask a person."""
    return "confirmed" if interrupt({"order_id": order_id}) else "refused"


def test_a_run_goes_over_the_wire_and_waits_and_keeps_what_the_provider_needs(provider):
    turns = [[call("look", "a", order_id="ü7")], [call("confirm", "a", order_id="ü7")]]
    provider.script = demanding(served(asks_for(*turns)))
    provider.split = 3

    with registered(create_agent(model=asking(provider), tools=[look, confirm])) as name:
        run = drive(name)
        assert run.status == "interrupted"
        resume_run(interrupt_id=Interrupt.objects.get(run=run).pk, value=True)
        run = drive(run=run)

    assert run.status == "completed", run.error_code
    assert messages(run)[-1] == ("assistant", "order ü7 | confirmed")
    assert len(provider.requests) == 3


def test_a_model_named_in_a_graph_is_reached_by_the_settings_and_heard_while_it_writes(provider):
    provider.script = demanding(served(asks_for([call("look", "a", order_id="7")])))
    provider.split = 5
    provider.fail(Failure(500))
    heard = []

    def listen(type, data, **_):
        heard.append((type, data))

    changes = {"OPENAI_BASE_URL": provider.openai_url, "MODEL_OPTIONS": {"first_wait": 0.01}}
    with (
        override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, **changes}),
        registered(create_agent(model="openai:pretend", tools=[look])) as name,
    ):
        progressed.connect(listen)
        try:
            run = drive(name)
        finally:
            progressed.disconnect(listen)

    assert run.status == "completed", run.error_code
    assert messages(run)[-1] == ("assistant", "order 7")
    told = "".join(data["text"] for type, data in heard if type == "message.delta")
    assert told == "order 7"


ODD = [
    Call(id="", name="look", arguments='{"order_id": "1"}'),
    Call(id="", name="look", arguments='{"order_id": "2"}'),
    Call(id="same", name="look", arguments="null"),
    Call(id="same", name="look", arguments='{"order'),
    Call(id="x", name="nobody", arguments="{}"),
    Call(id="y", name="look", arguments='{"order_id": "3", "more": 1}'),
    Call(id="z", name="", arguments=""),
]


def test_every_odd_call_has_one_truthful_result_and_the_thread_lives_on(provider):
    def script(body):
        told = [one.content for one in messages_of(body) if one.role == "tool"]
        return Answer(text=f"{len(told)} results") if told else Answer(calls=ODD)

    provider.script = script
    with registered(create_agent(model=asking(provider), tools=[look])) as name:
        run = drive(name)

    assert run.status == "completed", run.error_code
    assert messages(run)[-1] == ("assistant", "7 results")
    rows = ToolExecution.objects.filter(thread=run.thread_id).order_by("id")
    assert [row.status for row in rows] == ["succeeded", "succeeded", *["failed"] * 5]
    results = [text for role, text in messages(run) if role == "tool"]
    assert "order 1" in results[0]
    assert "There is no tool 'nobody'" in results[4]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_cut_call_is_never_run_and_the_model_is_told(provider, finish):
    ran = []

    @tool
    def refund(order_id: str = "", amount: int = 0) -> str:
        """Pay back."""
        ran.append(amount)
        return "paid"

    def script(body):
        told = [one.content for one in messages_of(body) if one.role == "tool"]
        if told:
            return Answer(text=told[0])
        return Answer(calls=[Call(name="refund", arguments='{"amount": 12}')], finish=finish)

    provider.script = script
    with registered(create_agent(model=asking(provider), tools=[refund])) as name:
        run = drive(name)

    assert run.status == "completed", run.error_code
    assert ran == []
    assert "cut off" in messages(run)[-1][1]


@pytest.mark.parametrize("how", ["close", "end", "error"])
def test_a_cut_stream_leaves_no_half_message_and_calls_nothing(provider, how):
    answer = Answer(text="I will look", calls=[Call(name="look", arguments='{"order_id": "1"}')])
    provider.script = lambda body: Cut(answer, 0.7, how)

    with registered(create_agent(model=asking(provider, attempts=2), tools=[look])) as name:
        run = drive(name)

    assert run.status == "failed"
    assert run.error_code.startswith("MODEL_0")
    assert messages(run) == [("user", "hello")]
    assert not ToolExecution.objects.exists()
    assert len(provider.requests) == 2


def test_a_refused_payload_fails_the_run_once_and_says_so(provider):
    provider.script = lambda body: Failure(400, "no such parameter")
    with registered(create_agent(model=asking(provider), tools=[look])) as name:
        run = drive(name)
    assert (run.status, run.error_code) == ("failed", "MODEL_004")
    assert len(provider.requests) == 1


@pytest.mark.parametrize("said", [None, "", " \n"])
def test_after_an_empty_answer_the_thread_takes_another_message(provider, said):
    provider.script = lambda body: Answer(text=said)
    with registered(create_agent(model=asking(provider), tools=[look])) as name:
        run = drive(name)
        assert run.status == "completed"
        provider.script = lambda body: Answer(text="fine")
        again = start_run(graph=name, input="and now?", thread_id=run.thread_id)
        again = drive(run=again)
    assert (again.status, messages(again)[-1]) == ("completed", ("assistant", "fine"))
    assert "" not in [
        json.dumps(one["content"]).strip('" \\n') for one in provider.bodies[-1]["messages"]
    ]
