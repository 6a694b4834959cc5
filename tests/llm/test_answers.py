"""What a model said becomes one neutral message, by either protocol, streamed or not."""

import json

import pytest

from agentruntime import llm
from agentruntime.graph import Message, tool
from agentruntime.graph.json_values import check_json
from tests.llm.conftest import Asker
from tests.llm.replies import Answer, Call

TEXT = "Grüße, 世界 — the refund of 12,50 € is on its way. 👍\n\nAnything else?"


@tool
def lookup(order_id: str = "") -> str:
    """Look an order up.

    Args:
        order_id: The number on the invoice.
    """
    return order_id


@pytest.mark.parametrize("split", [0, 1, 2, 3, 7])
async def test_a_text_arrives_whole_however_its_bytes_are_split(asker: Asker, split: int):
    asker.provider.split = split
    asker.script(Answer(text=TEXT))

    answer = await asker.ask()

    assert answer.role == "assistant"
    assert answer.content == TEXT
    assert answer.tool_calls == []
    assert "".join(asker.deltas) == (TEXT if asker.streaming else "")


@pytest.mark.parametrize("split", [0, 1, 5])
async def test_calls_arrive_whole_and_in_order(asker: Asker, split: int):
    asker.provider.split = split
    asker.script(
        Answer(
            text="I look both up.",
            calls=[
                Call(id="a", arguments='{"order_id": "ü-1", "rest": [1, {"x": null}]}'),
                Call(id="b", arguments='{"order_id":"2"}'),
            ],
        )
    )

    answer = await asker.ask(tools=(lookup,))

    assert answer.content == "I look both up."
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("a", "lookup", {"order_id": "ü-1", "rest": [1, {"x": None}]}),
        ("b", "lookup", {"order_id": "2"}),
    ]
    assert not any(call.extra.get("cut") for call in answer.tool_calls)


async def test_an_answer_says_where_it_came_from_and_what_it_took(asker: Asker):
    asker.script(Answer(text="yes", usage=(1000, 200), id="resp-9"))

    answer = await asker.ask()

    said = answer.extra
    assert (said["provider"], said["model"], said["attempts"]) == (asker.protocol, asker.model, 1)
    assert (said["answered_by"], said["response_id"]) == (asker.model.split(":")[1], "resp-9")
    assert said["finish"] == "stop"
    assert (said["usage"]["input_tokens"], said["usage"]["output_tokens"]) == (1000, 200)


async def test_two_answers_have_two_ids(asker: Asker):
    asker.script(Answer(text="yes"))
    assert (await asker.ask()).id != (await asker.ask()).id


async def test_an_answer_can_always_be_stored(asker: Asker):
    asker.script(
        Answer(
            text="a\x00b",
            calls=[
                Call(id="x", arguments='{"a": "\\u0000"}'),
                Call(id="y", name="look\x00up", arguments='{"n": 1e999}'),
                Call(id="z", arguments='{"a": ' + "[" * 200 + "]" * 200 + "}"),
            ],
        )
    )

    answer = await asker.ask()

    check_json(answer.model_dump(mode="json"))
    assert answer.content == "a�b"
    assert answer.extra["cleaned"] is True
    assert all(isinstance(call.arguments, str) for call in answer.tool_calls)


async def test_the_tool_is_offered_as_it_names_and_describes_itself(asker: Asker):
    await asker.ask(tools=(lookup,))

    [offered] = asker.provider.bodies[-1]["tools"]
    shown = offered.get("function", offered)
    schema = shown.get("parameters") or shown.get("input_schema")
    assert (shown["name"], shown["description"]) == ("lookup", "Look an order up.")
    assert schema["properties"]["order_id"] == {
        "default": "",
        "description": "The number on the invoice.",
        "type": "string",
    }
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("protocol", ["anthropic"], indirect=True)
async def test_parts_go_back_in_the_order_in_which_they_came(asker: Asker):
    parts = [("hm", "S1"), "First.", ("well", "S2"), "Second.", Call(id="a"), ("so", "S3")]
    asker.script(Answer(parts=parts, finish="tool_use"))

    answer = await asker.ask()
    body = await asker.ask_again(answer)

    assert answer.content == "First.\n\nSecond."
    assert "".join(asker.deltas) in ("", "fine")
    assert [
        one.get("signature") or one.get("text") or one["id"]
        for one in body["messages"][1]["content"]
    ] == ["S1", "First.", "S2", "Second.", "a", "S3"]


@pytest.mark.parametrize("protocol", ["anthropic"], indirect=True)
async def test_what_is_told_by_deltas_is_the_text_of_the_message(streamer: Asker):
    streamer.script(Answer(parts=["One.", ("hm", "S1"), "Two.", "Three."]))

    answer = await streamer.ask()

    assert "".join(streamer.deltas) == answer.content == "One.\n\nTwo.Three."


@pytest.mark.parametrize("kind", ["openai", "openai-responses"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refusal_is_the_answer(provider, kind, streaming):
    asker = Asker(kind, streaming, provider)
    asker.script(Answer(refusal="I cannot help with that.", finish="stop"))

    answer = await asker.ask()

    assert answer.content == "I cannot help with that."
    assert answer.extra["refusal"] is True
    assert len(provider.requests) == 1, "it is not asked again"


@pytest.mark.parametrize("text", [None, "", " \n\t "])
async def test_an_answer_that_says_nothing_is_asked_for_again_and_then_taken(asker: Asker, text):
    asker.script(Answer(text=text))

    answer = await asker.ask(empty_attempts=3)

    assert answer.content.strip() == ""
    assert answer.extra["empty"] is True
    assert len(asker.provider.requests) == 3
    assert [retry.code for retry in asker.retries] == ["EMPTY", "EMPTY"]


async def test_empty_answers_are_paid_for_too(asker: Asker):
    asker.script(Answer(text="at last", usage=(100, 20)))
    asker.provider.fail(Answer(text="", usage=(100, 0)), Answer(text=" ", usage=(100, 1)))

    answer = await asker.ask(empty_attempts=3)

    usage = answer.extra["usage"]
    assert (answer.content, usage["input_tokens"], usage["output_tokens"]) == ("at last", 300, 21)
    assert llm.cost(answer) == llm.price(asker.model, input_tokens=300, output_tokens=21)


@pytest.mark.parametrize("text", [None, "", " \n\t "])
async def test_after_an_empty_answer_the_conversation_can_go_on(asker: Asker, text):
    asker.script(Answer(text=text))
    empty = await asker.ask()

    body = await asker.ask_again(empty)

    assert [one["role"] for one in body["messages"]] == ["user", "user"] or (
        [one["role"] for one in body["messages"]] == ["user"]
    )


async def test_nothing_but_calls_is_an_answer(asker: Asker):
    asker.script(Answer(text=None, calls=[Call()]))

    answer = await asker.ask()

    assert answer.content == ""
    assert "empty" not in answer.extra
    assert len(asker.provider.requests) == 1


async def test_usage_that_was_not_told_is_not_invented(chat):
    for streaming in (False, True):
        asker = chat(streaming)
        asker.script(Answer(text="yes", usage=None))
        answer = await asker.ask()
        assert answer.extra["usage"] == {"unmeasured": True}


def test_messages_in_the_tests_are_stored_as_json():
    message = Message.assistant("x", extra={"fields": json.dumps({"b": 1, "a": 2})})
    assert json.loads(message.extra["fields"]) == {"b": 1, "a": 2}
