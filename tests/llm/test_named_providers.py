"""Providers by the names that the settings give them: whole runs, from there to the wire."""

from contextlib import asynccontextmanager

import pytest
from django.conf import settings
from django.test import override_settings
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from agentruntime.graph import create_agent
from tests.agents import asks_for, call, registered
from tests.llm.conftest import KEY
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Failure
from tests.llm.scripts import served
from tests.llm.test_runs import drive, look, messages

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run():
    """Works off a run of an agent on `model`, with these settings of the runtime."""

    def go(model, tools=(), **changes):
        quick = {"EMBEDDED_WORKER": False, "MODEL_OPTIONS": {"first_wait": 0.01, "attempts": 2}}
        given = {**settings.AGENTRUNTIME, **quick, **changes}
        agent = create_agent(model=model, tools=tools)
        with override_settings(AGENTRUNTIME=given), registered(agent) as name:
            return drive(name)

    return go


def by(protocol, provider, **more):
    """The fields of a provider that speaks this protocol."""
    return {"kind": protocol, "base_url": provider.base_url(protocol), "api_key": KEY, **more}


@pytest.mark.parametrize("model", ["ours:llama3:8b", "ours:org/model-1"])
def test_a_provider_of_the_hosts_own_is_asked_for_the_whole_story(run, provider, protocol, model):
    provider.script = served(asks_for([call("look", "a", order_id="7")]))
    ours = by(protocol, provider, headers={"X-Team": "shop"})
    done = run(model, [look], MODEL_PROVIDERS={"ours": ours})

    assert (done.status, done.error_detail) == ("completed", "")
    assert messages(done)[-1] == ("assistant", "order 7")
    assert {one.protocol for one in provider.requests} == {protocol}
    assert {one.body["model"] for one in provider.requests} == {model.partition(":")[2]}
    headers = [{k.lower(): v for k, v in one.headers.items()} for one in provider.requests]
    assert {one["x-team"] for one in headers} == {"shop"}
    assert all(KEY in (one.get("authorization", "") + one.get("x-api-key", "")) for one in headers)


def test_without_a_kind_an_address_speaks_chat_completions_and_needs_no_key(run, provider):
    done = run("ours:m", MODEL_PROVIDERS={"ours": {"base_url": provider.openai_url}})
    assert (done.status, messages(done)[-1][1]) == ("completed", "You said: hello")
    assert provider.requests[0].protocol == "openai"


def test_a_name_of_the_hosts_stands_before_the_usual_one(run, provider):
    with FakeProvider() as usual:
        done = run(
            "openai:m",
            OPENAI_BASE_URL=usual.openai_url,
            MODEL_PROVIDERS={"openai": by("openai", provider)},
        )
    assert (done.status, len(provider.requests), usual.requests) == ("completed", 1, [])


def test_a_refusal_of_a_provider_of_the_library_is_its_answer(run, provider):
    provider.script = lambda body: Answer(refusal="I cannot help with that.", finish="stop")
    theirs = {"kind": "ollama", "base_url": provider.openai_url, "api_key": KEY}
    done = run("theirs:m", MODEL_PROVIDERS={"theirs": theirs})

    assert (done.status, len(provider.requests)) == ("completed", 1), done.error_detail
    assert messages(done)[-1] == ("assistant", "I cannot help with that.")


def test_a_chain_goes_from_one_named_provider_to_the_next(run, provider):
    with FakeProvider(lambda body: Failure(503)) as away:
        done = run(
            "first:m, second:n",
            MODEL_PROVIDERS={"first": by("openai", away), "second": by("anthropic", provider)},
        )
    assert done.status == "completed"
    assert "hello" in messages(done)[-1][1]
    assert (len(away.requests), len(provider.requests)) == (2, 1)


class Unstreamed(WrapperModel):
    """A model of the library that cannot stream, as some there are."""

    @asynccontextmanager
    async def request_stream(self, *_):
        raise NotImplementedError
        yield


@pytest.mark.parametrize("wrap", [lambda made: made, Unstreamed])
def test_a_factory_makes_any_model_of_the_library(run, wrap):
    def whole(given, info):
        return ModelResponse(parts=[TextPart("made by hand")])

    async def pieces(given, info):
        for one in ("made by ", "hand"):
            yield one

    ours = {"factory": lambda name: wrap(FunctionModel(whole, stream_function=pieces))}
    done = run("ours:m", MODEL_PROVIDERS={"ours": ours})
    assert (done.status, messages(done)[-1][1]) == ("completed", "made by hand")


@pytest.mark.parametrize(
    ("model", "said"),
    [("nobody:m", "no provider is 'nobody'; there are: ours"), ("ours:m", "has no API key")],
)
def test_a_provider_that_cannot_be_asked_fails_the_run_by_name(run, model, said):
    done = run(model, MODEL_PROVIDERS={"ours": {"kind": "anthropic"}})
    assert (done.status, done.error_code) == ("failed", "MODEL_002")
    assert said in done.error_detail
