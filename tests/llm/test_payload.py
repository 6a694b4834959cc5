"""What is sent is always a conversation that a provider takes; and the validator notices if not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruntime.graph import Message, ToolCall
from agentruntime.llm.payload import NO_RESULT, sendable
from tests.llm.payloads import ANTHROPIC_ID, InvalidPayload, check_messages, check_payload

ids = st.sampled_from(["", "a", "b", "call_1", "with space", "x" * 60, "ü"])
texts = st.sampled_from(["", " ", "hello"])
calls = st.lists(st.builds(ToolCall, id=ids, name=st.sampled_from(["f", "", "g h"])), max_size=3)
messages = st.lists(
    st.one_of(
        st.builds(Message.user, texts),
        st.builds(Message.system, texts),
        st.builds(lambda text, found: Message.assistant(text, tool_calls=found), texts, calls),
        st.builds(lambda text, ident: Message.tool(text, tool_call_id=ident), texts, ids),
    ),
    max_size=12,
)


@given(messages, st.booleans(), st.booleans())
def test_any_conversation_becomes_one_that_can_be_sent(given_messages, plain, user_first):
    sent = sendable(given_messages, plain_ids=plain, user_first=user_first)

    check_messages(sent)
    idents = [call.id for message in sent for call in message.tool_calls]
    assert len(idents) == len(set(idents))
    assert all(0 < len(ident) <= 40 for ident in idents)
    if plain:
        assert all(ANTHROPIC_ID.fullmatch(ident) for ident in idents)
    if user_first:
        assert next((one.role for one in sent if one.role != "system"), "user") == "user"
    assert all(one.content.strip() or one.tool_calls or one.role == "tool" for one in sent)


@given(messages)
def test_every_call_is_sent_and_no_result_twice(given_messages):
    sent = sendable(given_messages)

    count = sum(len(message.tool_calls) for message in given_messages)
    results = [message for message in sent if message.role == "tool"]
    assert len(results) == count
    own = [message.id for message in results if message.content != NO_RESULT]
    assert len(own) == len(set(own))


@given(messages)
def test_what_can_be_sent_is_sent_as_it_is(given_messages):
    once = sendable(given_messages)
    again = sendable(once)
    assert [one.model_dump() for one in again] == [one.model_dump() for one in once]


def assistant(*idents, content=""):
    return Message.assistant(content, tool_calls=[ToolCall(id=ident, name="f") for ident in idents])


def result(ident):
    return Message.tool("r", tool_call_id=ident)


@pytest.mark.parametrize(
    "conversation",
    [
        [assistant("a")],
        [assistant("a", "b"), result("b"), result("a")],
        [assistant("a"), result("a"), result("a")],
        [assistant("a"), Message.user("x"), result("a")],
        [assistant("a"), assistant("b"), result("a"), result("b")],
        [result("a")],
        [assistant("a", "a"), result("a"), result("a")],
        [assistant(""), result("")],
        [Message.user("x", id="1"), Message.user("y", id="1")],
    ],
)
def test_the_validator_notices(conversation):
    with pytest.raises(InvalidPayload):
        check_messages(conversation)


def test_the_validator_is_content_with_a_sound_conversation():
    turn = [assistant("a", "b"), result("a"), result("b")]
    later = [assistant("a"), result("a")]  # ids are unique within their message only
    check_messages([Message.system("s"), Message.user("u"), *turn, *later, assistant(content="x")])
    check_messages([Message.user("u"), assistant("a")], complete=False)
    check_messages([one.model_dump() for one in turn])


def openai_call(ident, arguments="{}", name="f"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def openai_turn(*given_calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(given_calls)}


@pytest.mark.parametrize(
    "conversation",
    [
        [openai_turn(openai_call("a"))],
        [openai_turn(openai_call("a", "[]")), {"role": "tool", "tool_call_id": "a", "content": ""}],
        [openai_turn(openai_call("x" * 41)), {"role": "tool", "tool_call_id": "x", "content": ""}],
        [{"role": "assistant", "content": ""}],
        [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": ""}],
        [{"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
        [{"role": "user", "content": [{"type": "text", "text": " "}]}],
        [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]},
        ],
        [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "tool_result", "tool_use_id": "a", "content": ""},
                ],
            },
        ],
    ],
)
def test_the_validator_notices_what_a_provider_would(conversation):
    with pytest.raises(InvalidPayload):
        check_payload(conversation)


def test_the_validator_notices_tools_of_one_name():
    tools = [{"type": "function", "function": {"name": "f"}}] * 2
    with pytest.raises(InvalidPayload, match="two tools"):
        check_payload({"messages": [{"role": "user", "content": "x"}], "tools": tools})
