"""What only the provider understands comes back to it unchanged, store and restart between."""

import json

import pytest

from agentruntime import llm
from agentruntime.graph import Message
from tests.llm.conftest import KEY, Asker
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Call, Failure

OPAQUE = 'gAAAA+/=="\\\n\u0000\ud83d\ude00 ü' + "x" * 3000
FIELDS = {
    "thought_signature": OPAQUE,
    "z": {"b": [1, {"y": 2, "x": 1.5}], "a": "1.10"},
    "on": True,
    "extra_content": {"google": {"thought_signature": "S=="}},
}
ARGUMENTS = '{ "zeta": 1.10,\n "alpha": {"y": "ü", "x": []} }'


@pytest.fixture
def demanding(provider: FakeProvider) -> FakeProvider:
    """A provider that refuses the thread unless it gets its own fields back, letter by letter."""
    answer = Answer(
        text="I look.",
        calls=[Call(id="a", arguments=ARGUMENTS, fields=FIELDS), Call(id="b")],
        fields={"reasoning_details": [{"type": "encrypted", "data": OPAQUE, "index": 0}]},
        thinking=[("Let me think.", "")],
    )

    def script(body):
        turn = next((one for one in body["messages"] if one["role"] == "assistant"), None)
        if turn is None:
            return answer
        call = turn["tool_calls"][0]
        unchanged = (
            all(json.dumps(call[name]) == json.dumps(FIELDS[name]) for name in FIELDS)
            and json.dumps(turn["reasoning_details"])
            == json.dumps(answer.fields["reasoning_details"])
            and turn["reasoning_content"] == "Let me think."
            and call["function"]["arguments"] == ARGUMENTS
            and set(turn["tool_calls"][1]) == {"id", "type", "function"}
        )
        return Answer(text="thank you") if unchanged else Failure(400, "where are my fields?")

    provider.script = script
    return provider


@pytest.mark.parametrize("protocol", ["openai"], indirect=True)
async def test_unknown_fields_come_back_byte_for_byte(asker: Asker, demanding: FakeProvider):
    answer = await asker.ask()
    script = demanding.script
    body = await asker.ask_again(answer)

    assert isinstance(script(body), Answer), script(body)


@pytest.mark.parametrize("protocol", ["openai"], indirect=True)
async def test_a_host_may_keep_unknown_fields_to_itself(asker: Asker, demanding: FakeProvider):
    answer = await asker.ask()
    demanding.script = lambda body: Answer(text="fine")
    provider = llm.Provider(base_url=demanding.openai_url, api_key=KEY, return_unknown_fields=False)
    told = [Message.tool("r", tool_call_id=call.id) for call in answer.tool_calls]
    await llm.complete(
        asker.model,
        [Message.user("hello"), answer, *told],
        options=llm.ModelOptions(providers={"openai": provider}),
    )

    turn = demanding.bodies[-1]["messages"][1]
    assert set(turn) == {"role", "content", "tool_calls", "reasoning_content"}
    assert set(turn["tool_calls"][0]) == {"id", "type", "function"}


@pytest.mark.parametrize("protocol", ["anthropic"], indirect=True)
async def test_signed_thinking_comes_back_byte_for_byte(asker: Asker):
    thoughts = [("Let me think…\n", "sig+/=" * 50), ("", "redacted-like")]
    asker.script(Answer(text="I look.", thinking=thoughts, calls=[Call(id="a")]))

    answer = await asker.ask()
    body = await asker.ask_again(answer)

    blocks = body["messages"][1]["content"]
    assert [(one["thinking"], one["signature"]) for one in blocks[:2]] == thoughts
    assert [one["type"] for one in blocks] == ["thinking", "thinking", "text", "tool_use"]


async def test_one_providers_data_is_not_sent_to_another(provider: FakeProvider):
    options = llm.ModelOptions(
        providers={
            "openai": llm.Provider(base_url=provider.openai_url, api_key=KEY),
            "other": llm.Provider(base_url=provider.openai_url, api_key=KEY),
            "anthropic": llm.Provider(kind="anthropic", base_url=provider.url, api_key=KEY),
        }
    )
    answer = Answer(
        text="I look.", thinking=[("hm", "S")], fields={"mystery": 1}, calls=[Call(fields=FIELDS)]
    )
    for asked, others in [("openai:x", ["other:x", "anthropic:claude-opus-5"])]:
        provider.script = lambda body: answer
        first = await llm.complete(asked, [Message.user("hello")], options=options)
        provider.script = lambda body: Answer(text="fine")
        told = Message.tool("r", tool_call_id=first.tool_calls[0].id)
        for other in others:
            await llm.complete(other, [Message.user("hello"), first, told], options=options)
            sent = json.dumps(provider.bodies[-1])
            assert "I look." in sent
            assert not any(word in sent for word in ("mystery", "hm", "thought_signature"))


async def test_a_message_that_was_changed_is_sent_as_it_reads_now(asker: Asker):
    asker.script(Answer(text="I look.", thinking=[("hm", "S")], calls=[Call(id="a")]))
    answer = await asker.ask()

    body = await asker.ask_again(answer.model_copy(update={"content": "Another text."}))

    assert "Another text." in json.dumps(body["messages"][1])
    assert "I look." not in json.dumps(body)


@pytest.mark.parametrize("protocol", ["openai"], indirect=True)
async def test_edited_arguments_are_sent_as_they_read_now(asker: Asker):
    asker.script(Answer(calls=[Call(id="a", arguments='{"b": 1, "a": 2}')]))
    answer = await asker.ask()
    [call] = answer.tool_calls
    edited = call.model_copy(update={"arguments": {"a": 3}})

    body = await asker.ask_again(answer.model_copy(update={"tool_calls": [edited]}))

    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a":3}'
