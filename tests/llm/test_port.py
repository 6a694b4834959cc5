"""The port itself: event loops, the environment, the switch, counting, prices, other models."""

import asyncio
import subprocess
import sys
import threading
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from agentruntime import exceptions, llm
from agentruntime.graph import Message
from agentruntime.llm.options import read_model_names
from tests.llm.conftest import KEY, Asker, stored
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Call, Cut, Failure


def options_for(provider: FakeProvider, **changes) -> llm.ModelOptions:
    made = {"openai": llm.Provider(base_url=provider.openai_url, api_key=KEY)}
    return llm.ModelOptions(providers=made, **changes)


def ask_once(provider: FakeProvider, *, close: bool = True) -> Message:
    async def ask():
        options = options_for(provider)
        answer = await llm.complete("openai:x", [Message.user("hello")], options=options)
        if close:
            await llm.close_clients()
        return answer

    return asyncio.run(ask())


# --- event loops -----------------------------------------------------------------------------


def test_each_event_loop_has_connections_of_its_own(provider):
    for _ in range(3):
        assert ask_once(provider).content == "You said: hello"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask_once(provider))) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3


async def test_one_loop_keeps_its_connections(provider):
    options = options_for(provider)
    for _ in range(3):
        await llm.complete("openai:x", [Message.user("hello")], options=options)
    [connection] = {one.headers["Host"] for one in provider.requests}
    assert connection.startswith("127.0.0.1:")
    assert provider.connections == 1


async def test_another_key_is_another_client(provider):
    for key in ("key-one", "key-two"):
        made = {"openai": llm.Provider(base_url=provider.openai_url, api_key=key)}
        options = llm.ModelOptions(providers=made)
        await llm.complete("openai:x", [Message.user("hello")], options=options)
    assert [one.headers["authorization"] for one in provider.requests] == [
        "Bearer key-one",
        "Bearer key-two",
    ]


async def test_many_questions_at_once_get_their_own_answers(asker: Asker):
    asker.provider.split = 9
    answers = await asyncio.gather(*(asker.ask(Message.user(f"number {n}")) for n in range(8)))
    assert all(f"number {n}" in answer.content for n, answer in enumerate(answers))


async def test_closing_twice_and_asking_again_is_fine(provider):
    options = options_for(provider)
    await llm.complete("openai:x", [Message.user("hello")], options=options)
    await llm.close_clients()
    await llm.close_clients()
    answer = await llm.complete("openai:x", [Message.user("hello")], options=options)
    assert answer.content == "You said: hello"


# --- the environment -------------------------------------------------------------------------


async def test_nothing_is_taken_from_the_environment(asker: Asker, monkeypatch):
    for name in ("OPENAI", "ANTHROPIC"):
        for what in ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID", "ADMIN_KEY", "AUTH_TOKEN"):
            monkeypatch.setenv(f"{name}_{what}", "http://127.0.0.1:1/from-the-environment")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    await asker.ask()

    [received] = asker.provider.requests
    assert "from-the-environment" not in str(received)
    assert not {"openai-organization", "openai-project"} & {
        name.lower() for name in received.headers
    }


def test_the_libraries_are_loaded_only_when_a_model_is_asked():
    code = (
        "import sys, agentruntime.llm as llm\n"
        "options = llm.ModelOptions(providers={'openai': llm.Provider(api_key='k')})\n"
        "llm.client_for('openai:x', options)\n"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_library_that_is_not_installed_is_named():
    code = (
        "import asyncio, sys, agentruntime.llm as llm\n"
        "from agentruntime.graph import Message\n"
        "sys.modules['anthropic'] = None\n"
        "made = {'a': llm.Provider(kind='anthropic', base_url='http://127.0.0.1:1')}\n"
        "options = llm.ModelOptions(providers=made)\n"
        "try: asyncio.run(llm.complete('a:x', [Message.user('hello')], options=options))\n"
        "except Exception as error: print(error.code, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("MODEL_002")
    assert "agentruntime[anthropic]" in run.stdout


# --- the switch ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("address", ["", "https://api.example.com/v1", "http://10.0.0.7/v1"])
async def test_real_requests_fail_while_they_are_switched_off(kind, address):
    made = {kind: llm.Provider(kind=kind, base_url=address, api_key=KEY)}
    options = llm.ModelOptions(providers=made)
    with pytest.raises(exceptions.ModelRequestsOff):
        await llm.complete(f"{kind}:x", [Message.user("hello")], options=options)
    with pytest.raises(exceptions.ModelRequestsOff):
        await llm.count(f"{kind}:x", [Message.user("hello")], options=options)


async def test_the_options_can_switch_them_off_too():
    llm.refuse_real_requests(False)
    made = {"openai": llm.Provider(base_url="https://api.example.com/v1", api_key=KEY)}
    options = llm.ModelOptions(providers=made, real_requests=False)
    with pytest.raises(exceptions.ModelRequestsOff):
        await llm.complete("openai:x", [Message.user("hello")], options=options)


# --- counting and prices ---------------------------------------------------------------------


async def test_a_provider_that_counts_is_asked_and_else_it_is_estimated(streamer: Asker):
    messages = [Message.system("Be brief."), Message.user("word " * 300)]
    counted = await llm.count(streamer.model, messages, options=streamer.options())
    if streamer.protocol == "anthropic":
        assert counted == streamer.provider.tokens_counted
    else:
        assert 300 <= counted <= 600


@pytest.mark.parametrize(
    ("protocol", "expected"),
    # gpt-4o-mini: 0.15 and 0.60 dollars per million; claude-opus-5: 5 and 25.
    [("openai", Decimal("0.27")), ("anthropic", Decimal("10"))],
    indirect=["protocol"],
)
async def test_an_answer_knows_what_it_cost(streamer: Asker, expected: Decimal):
    streamer.script(Answer(text="yes", usage=(1_000_000, 200_000)))
    answer = await streamer.ask()
    assert llm.cost(answer) == expected
    assert llm.price(streamer.model, input_tokens=1_000_000, output_tokens=200_000) == expected


async def test_a_model_without_a_price_costs_nobody_knows_what(provider):
    answer = await llm.complete(
        "openai:our-own-model", [Message.user("hello")], options=options_for(provider)
    )
    assert llm.cost(answer) is None
    assert llm.price("openai:our-own-model", input_tokens=1, output_tokens=1) is None
    assert llm.cost(Message.assistant("by hand")) is None


def test_of_a_chain_the_dearest_counts():
    cheap = llm.price("openai:gpt-4o-mini", input_tokens=1000, output_tokens=1000)
    dear = llm.price("openai:gpt-4o", input_tokens=1000, output_tokens=1000)
    chain = llm.price("openai:gpt-4o-mini,openai:gpt-4o", input_tokens=1000, output_tokens=1000)
    assert chain == dear > cheap


# --- settings and other models ---------------------------------------------------------------


async def test_settings_reach_the_provider(asker: Asker):
    setting = {"stop_sequences": ["END"]}
    if asker.protocol == "openai-responses":  # it knows no such thing
        setting = {"temperature": 0.25}
    await asker.ask(max_tokens=77, settings=setting)
    body = asker.provider.bodies[-1]
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    assert [body[name] for name in names if name in body] == [77]
    told = body.get("stop", body.get("stop_sequences", body.get("temperature")))
    assert told == next(iter(setting.values()))


def test_the_usual_providers_are_those_that_have_a_key():
    found = llm.usual_providers(openai_base_url="http://127.0.0.1:1/v1", anthropic_api_key=KEY)
    assert {name: one.kind for name, one in found.items()} == {
        "openai": "openai",
        "openai-responses": "openai-responses",
        "anthropic": "anthropic",
    }
    assert llm.usual_providers() == {}


async def test_what_another_model_marks_its_parts_with_comes_back_to_it():
    """Google signs texts and calls, OpenAI's responses give each an id of its own."""
    parts = [
        ThinkingPart("hm", id="rs_1", signature="S", provider_name="function"),
        TextPart("One.", id="m_1", provider_name="function", provider_details={"sig": "a"}),
        TextPart("Two.", id="m_2", provider_name="function"),
        ToolCallPart("f", "{}", "c", id="fc_1", provider_name="function"),
        ToolCallPart("g", "{}", "d", provider_name="function", provider_details={"sig": ["b"]}),
    ]
    sent = []

    def script(messages, info):
        sent.append(messages)
        return ModelResponse(parts=parts)

    made = {"ours": llm.Provider(factory=lambda name: FunctionModel(script))}
    options = llm.ModelOptions(providers=made)
    answer = await llm.complete("ours:x", [Message.user("hello")], options=options)
    told = [Message.tool("r", tool_call_id=call.id) for call in answer.tool_calls]
    history = [Message.user("hello"), stored(answer), *told]
    await llm.complete("ours:x", history, options=options)

    assert answer.content == "One.Two."
    assert sent[-1][1].parts == parts


async def test_any_model_of_the_library_can_be_used():
    def script(messages, info):
        return ModelResponse(parts=[TextPart("Done."), ToolCallPart("look", '{"a":1}', "c1")])

    made = {"ours": llm.Provider(factory=lambda name: FunctionModel(script, model_name=name))}
    answer = await llm.complete(
        "ours:anything", [Message.user("hello")], options=llm.ModelOptions(providers=made)
    )
    assert answer.content == "Done."
    assert answer.tool_calls[0].arguments == {"a": 1}
    assert answer.extra["provider"] == "ours"


# --- by name ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("openai:x", {"api_key": KEY}, "openai"),
        ("local:x", {"base_url": "http://127.0.0.1:1/v1"}, "openai"),
        ("groq:x", {"api_key": KEY}, "groq"),
        ("google:x", {"kind": "openai", "api_key": KEY}, "openai"),
    ],
)
def test_what_a_provider_speaks_follows_from_its_name_where_nothing_is_said(name, given, kind):
    [model] = read_model_names(name)
    options = llm.ModelOptions(providers={model.provider: llm.Provider(**given)})
    assert options.provider(model).kind == kind


async def test_a_provider_that_the_library_knows_is_asked_by_its_name(provider: FakeProvider):
    """Ollama is one of them, and takes an address; it speaks like OpenAI."""
    made = {"ours": llm.Provider(kind="ollama", base_url=provider.openai_url)}
    options = llm.ModelOptions(providers=made, first_wait=0.01)
    asked = [Message.user("hello")]
    answer = await llm.complete("ours:llama3:8b", asked, options=options)
    assert (answer.content, answer.extra["kind"]) == ("You said: hello", "ollama")
    assert provider.bodies[-1]["model"] == "llama3:8b"

    provider.fail(Cut(Answer(text="A half of"), how="end"), Failure(500))
    deltas = []
    answer = await llm.complete("ours:m", asked, options=options, on_delta=deltas.append)
    assert answer.content == "You said: hello"
    assert (answer.extra["attempts"], len(provider.requests)) == (3, 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "nobody"}, "no model of the library"),
        ({"kind": "deepseek", "base_url": "http://127.0.0.1:1"}, "takes no address"),
        ({"kind": "groq"}, "not installed"),
    ],
)
async def test_a_provider_that_cannot_be_reached_like_that_is_said(given, said):
    options = llm.ModelOptions(providers={"ours": llm.Provider(api_key=KEY, **given)})
    with pytest.raises(exceptions.InvalidModel, match=said):
        await llm.complete("ours:x", [Message.user("hello")], options=options)


async def test_reasoning_of_the_responses_api_goes_back_as_it_came(provider: FakeProvider):
    made = {"ours": llm.Provider("openai-responses", base_url=provider.openai_url)}
    options = llm.ModelOptions(providers=made)
    thinking = [("I wonder.", 'gAAA+/="\\ü')]
    provider.script = lambda body: Answer(text="I look.", thinking=thinking, calls=[Call(id="a")])
    asked = [Message.user("hello")]
    answer = await llm.complete("ours:gpt-5-mini", asked, options=options, on_delta=print)
    more = [stored(answer), Message.tool("r", tool_call_id="a")]
    await llm.complete("ours:gpt-5-mini", [*asked, *more], options=options)
    sent = provider.bodies[-1]
    [item] = [one for one in sent["input"] if one.get("type") == "reasoning"]
    assert (item["id"], item["encrypted_content"]) == ("rs_0", thinking[0][1])
    assert sent["store"] is False
