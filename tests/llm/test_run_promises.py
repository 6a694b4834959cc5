"""What a run promises where a provider answers: kept over a pause, counted, ended in time."""

import json
import threading
import time

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connections
from django.test import override_settings

from agentruntime.graph import create_agent
from agentruntime.lifecycle import conversation, resume_run, start_run, stop_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Interrupt, RunStatus, ToolExecution
from agentruntime.signals import counted, progressed
from tests.agents import registered
from tests.llm.conftest import KEY, MODELS
from tests.llm.replies import Answer, Call, Cut, Failure, Halted, Silence
from tests.llm.test_runs import confirm, drive, look, messages
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
OPAQUE = 'rs+/=\\"ü\u2028' * 20


@pytest.fixture
def desk(provider, protocol):
    """An agent on the pretend provider, by each protocol; gives its name."""
    ours = {"kind": protocol, "base_url": provider.base_url(protocol), "api_key": KEY}
    changes = {
        "EMBEDDED_WORKER": False,
        "MODEL_PROVIDERS": {"ours": ours},
        "MODEL_OPTIONS": {"first_wait": 0.01, "attempts": 3},
    }
    agent = create_agent(model=f"ours:{MODELS[protocol]}", tools=[look, confirm])
    with (
        override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, **changes}),
        registered(agent) as name,
    ):
        yield name


@pytest.fixture
def told():
    """What was counted, and what watchers heard, in order."""
    heard = []

    def count(*, name, value, attributes, **_):
        heard.append((name, attributes.get("code")))

    def hear(*, type, data, **_):
        heard.append((type, data))

    counted.connect(count)
    progressed.connect(hear)
    yield heard
    counted.disconnect(count)
    progressed.disconnect(hear)


def forget(monkeypatch):
    """What a process remembers is gone, as after a restart: there is only the database."""
    monkeypatch.setattr(conversation, "_kept", conversation._Kept())
    cache.clear()


def test_what_a_provider_wants_back_survives_a_pause_and_a_restart(
    provider, desk, protocol, monkeypatch
):
    thinking = [("Let me think…\n", OPAQUE)]
    asks = Answer(
        text="I ask.", thinking=thinking, calls=[Call(name="confirm", arguments='{"order_id":"7"}')]
    )
    provider.script = lambda body: Answer(text="Thanks.") if "confirmed" in str(body) else asks
    run = drive(desk)
    assert run.status == "interrupted"

    forget(monkeypatch)
    resume_run(interrupt_id=Interrupt.objects.get(run=run).pk, value=True)
    run = drive(run=run)

    assert (run.status, messages(run)[-1][1]) == ("completed", "Thanks.")
    [sent] = [received for received in provider.requests if "confirmed" in str(received.body)]
    body = json.dumps(sent.body, ensure_ascii=False)
    assert json.dumps("Let me think…\n", ensure_ascii=False) in body
    # OpenAI's chat completions know no signature.
    assert protocol == "openai" or json.dumps(OPAQUE, ensure_ascii=False) in body


def test_each_retry_is_counted_and_what_was_heard_is_void(provider, desk, told):
    answer = Answer(text="All is well.")
    provider.script = lambda body: answer
    provider.fail(Cut(Answer(text="A text that breaks off " * 5), 0.7), Failure(429))
    run = drive(desk)

    assert (run.status, messages(run)[-1][1]) == ("completed", "All is well.")
    assert len([one for one in told if one[0] == "model.retries"]) == 2
    assert ("model.retries", "MODEL_007") in told
    void = max(n for n, one in enumerate(told) if isinstance(one[1], dict) and "restarts" in one[1])
    after = "".join(data["text"] for kind, data in told[void:] if kind == "message.delta")
    assert after == "All is well."
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        Silence(20),
        Silence(20, Answer(text="half " * 40)),
        Failure(429, headers={"Retry-After": "30"}),
    ],
    ids=["silent", "silent-midway", "asks-for-patience"],
)
def test_no_model_call_outlasts_its_nodes_deadline(provider, desk, reply):
    provider.script = lambda body: Answer(text="Ready.")
    assert drive(run=start_run(graph=desk, input="are you there?")).status == RunStatus.COMPLETED
    provider.requests.clear()  # the first call of a process loads the provider's library

    provider.script = lambda body: reply
    began = time.monotonic()
    run = start_run(graph=desk, input="hello", config={"node_timeout": 1.0})
    run = drive(run=run)

    assert time.monotonic() - began < 6
    assert run.has_ended
    assert run.status != RunStatus.COMPLETED
    assert run.error_code in ("NODE_TIMEOUT_001", "MODEL_010", "MODEL_007")
    assert messages(run) == [("user", "hello")]
    assert len(provider.requests) == 1


def test_stopped_while_the_model_writes_nothing_half_is_kept_and_the_thread_goes_on(
    provider, desk, told
):
    go_on = threading.Event()
    call = Call(name="look", arguments='{"order_id": "1"}')
    provider.script = lambda body: Halted(Answer(text="I look. " * 20, calls=[call]), go_on)
    run = start_run(graph=desk, input="hello")

    def work():
        execute(run.pk)
        connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        wait_until(lambda: any(kind == "message.delta" for kind, _ in told), 20, "the first words")
        stop_run(run_id=run.pk)
        worker.join(10)
        assert not worker.is_alive()
    finally:
        go_on.set()
        worker.join()
    run.refresh_from_db()
    assert (run.status, messages(run)) == ("stopped", [("user", "hello")])
    assert not ToolExecution.objects.exists()

    provider.script = lambda body: Answer(text="Here I am.")
    again = drive(run=start_run(graph=desk, input="and now?", thread_id=run.thread_id))
    assert (again.status, messages(again)[-1][1]) == ("completed", "Here I am.")
