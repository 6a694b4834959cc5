"""What models really send: each oddity ends as one truthful call, and the thread lives on."""

import json

import pytest

from agentruntime.exceptions import InvalidArguments
from agentruntime.graph import Message, tool
from agentruntime.graph.messages import ToolCall
from tests.llm.conftest import Asker, stored
from tests.llm.payloads import check_payload
from tests.llm.replies import Answer, Call

# None of these is an object that means itself.
ODD_ARGUMENTS = ["", "   ", "null", "[]", "5", '"text"', '{"a":', '{"a": 1, "a": 2}', '{"a": NaN}']
NO_ARGUMENTS = ("", "   ")


@tool
def nothing() -> str:
    """Take nothing."""
    return ""


@tool
def needs(a: int) -> str:
    """Take a number."""
    return str(a)


def results_of(body):
    """The results in a request, of either protocol: (id, text) in order."""
    found = []
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append((message["tool_call_id"], message["content"]))
        elif isinstance(message["content"], list):
            found += [
                (block["tool_use_id"], "".join(one["text"] for one in block["content"] or []))
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
    return found


def calls_of(body):
    """The calls in a request, of either protocol: (id, name, arguments) in order."""
    found = []
    for message in body["messages"]:
        for call in message.get("tool_calls") or []:
            function = call["function"]
            found.append((call["id"], function["name"], json.loads(function["arguments"])))
        if isinstance(message["content"], list):
            found += [
                (block["id"], block["name"], block["input"])
                for block in message["content"]
                if block["type"] == "tool_use"
            ]
    return found


@pytest.mark.parametrize("text", ODD_ARGUMENTS)
async def test_odd_arguments_are_kept_as_they_came_and_never_filled_in(streamer: Asker, text: str):
    streamer.script(Answer(calls=[Call(arguments=text)]))

    [call] = (await streamer.ask()).tool_calls

    # Anthropic's streams cannot tell an empty input from none.
    assert call.arguments == text or (text in NO_ARGUMENTS and call.arguments in ("", {}))
    with pytest.raises(InvalidArguments):
        needs.read_arguments(call.arguments)
    if text in NO_ARGUMENTS:
        assert nothing.read_arguments(call.arguments) == ({}, {})


@pytest.mark.parametrize("text", ODD_ARGUMENTS)
async def test_odd_arguments_do_not_spoil_the_conversation(asker: Asker, text: str):
    asker.script(Answer(calls=[Call(arguments=text)]))
    answer = await asker.ask()

    body = await asker.ask_again(answer)

    [(_, _, sent)] = calls_of(body)
    assert isinstance(sent, dict)
    assert results_of(body) == [("call_1", "done")]


@pytest.mark.parametrize(
    "arguments", [None, {"a": 1}, [], 5, ["x"], {"a": {"b": None}}], ids=lambda value: repr(value)
)
async def test_arguments_that_are_no_text_are_read_for_what_they_are(chat, arguments):
    for streaming in (False, True):
        asker = chat(streaming)
        asker.script(Answer(calls=[Call(arguments=arguments)]))
        [call] = (await asker.ask()).tool_calls
        expected = arguments if isinstance(arguments, dict) else json.dumps(arguments)
        assert call.arguments == ("" if arguments is None else expected)


async def test_a_call_without_a_name_stays_a_call(chat):
    for streaming in (False, True):
        asker = chat(streaming)
        asker.script(Answer(calls=[Call(name=None, id=None), Call(name="lookup", id="b")]))
        answer = await asker.ask()
        assert [call.name for call in answer.tool_calls] == ["", "lookup"]
        body = await asker.ask_again(answer)
        assert [name for _, name, _ in calls_of(body)] == ["unnamed", "lookup"]


async def test_names_that_no_provider_takes_back_are_sent_in_a_form_it_takes(asker: Asker):
    asker.script(Answer(calls=[Call(name="look up/order!"), Call(name="x" * 80, id="b")]))

    answer = await asker.ask()
    body = await asker.ask_again(answer)

    assert [call.name for call in answer.tool_calls] == ["look up/order!", "x" * 80]
    assert [name for _, name, _ in calls_of(body)] == ["look_up_order_", "x" * 64]


async def test_calls_with_one_id_keep_their_own_results(asker: Asker):
    asker.script(Answer(calls=[Call(id="same", name=name) for name in ("one", "two", "three")]))
    answer = (await asker.ask()).settled(__import__("uuid").uuid4())

    results = [
        Message.tool(f"result of {call.name}", tool_call_id=call.id) for call in answer.tool_calls
    ]
    asker.script(Answer(text="fine"))
    await asker.ask(Message.user("hello"), answer, *results)

    body = asker.provider.bodies[-1]
    assert [text for _, text in results_of(body)] == [
        "result of one",
        "result of two",
        "result of three",
    ]
    assert [ident for ident, _, _ in calls_of(body)] == [ident for ident, _ in results_of(body)]


async def test_empty_ids_and_ids_reused_across_turns_are_told_apart(asker: Asker):
    history = [Message.user("hello")]
    for turn in range(3):
        calls = [ToolCall(id="", name="a"), ToolCall(id="call_1", name="b")]
        message = Message.assistant(tool_calls=calls).settled(__import__("uuid").uuid4())
        history += [message]
        history += [
            Message.tool(f"{call.name}{turn}", tool_call_id=call.id) for call in message.tool_calls
        ]

    await asker.ask(*history)

    body = asker.provider.bodies[-1]
    check_payload(body)
    assert [text for _, text in results_of(body)] == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert len({ident for ident, _, _ in calls_of(body)}) == 6


async def test_an_id_of_any_length_is_an_id(asker: Asker):
    asker.script(Answer(calls=[Call(id="x" * 5000), Call(id="x" * 4999)]))

    answer = await asker.ask()
    body = await asker.ask_again(answer)

    assert all(len(call.id) <= 100 for call in answer.tool_calls)
    assert [text for _, text in results_of(body)] == ["done", "done"]


async def test_the_ids_of_a_payload_are_the_same_each_time(asker: Asker):
    message = Message.assistant(tool_calls=[ToolCall(id="x" * 60, name="a")])
    history = [Message.user("hello"), message, Message.tool("r", tool_call_id="x" * 60)]
    sent = []
    for _ in range(2):
        await asker.ask(*map(stored, history))
        sent.append(calls_of(asker.provider.bodies[-1])[0][0])
    assert sent[0] == sent[1]
    assert len(sent[0]) <= 40


@pytest.mark.parametrize("same_id", [False, True])
async def test_parallel_calls_that_share_one_index_are_not_run_into_one(chat, same_id: bool):
    asker = chat(True)
    ids = ["", ""] if same_id else ["a", "b"]
    asker.script(
        Answer(
            calls=[
                Call(id=ids[0], name="lookup", arguments={"n": 1}, index=0),
                Call(id=ids[1], name="refund", arguments={"n": 2}, index=0),
            ]
        )
    )

    answer = await asker.ask()

    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("lookup", {"n": 1}),
        ("refund", {"n": 2}),
    ]


async def test_a_call_whose_result_was_never_stored_is_sent_with_one_that_says_so(asker: Asker):
    asker.script(Answer(calls=[Call(id="a"), Call(id="b")]))
    answer = await asker.ask()

    body = await asker.ask_again(answer, results=False)

    assert results_of(body) == [
        ("a", "No result of this call is recorded."),
        ("b", "No result of this call is recorded."),
    ]


async def test_results_stand_right_after_their_calls_whatever_was_said_between(asker: Asker):
    answer = Message.assistant(tool_calls=[ToolCall(id="a", name="x"), ToolCall(id="b", name="y")])
    await asker.ask(
        Message.user("hello"),
        answer,
        Message.tool("of b", tool_call_id="b"),
        Message.user("are you there?"),
        Message.tool("of a", tool_call_id="a"),
        Message.tool("of nobody", tool_call_id="zzz"),
    )

    body = asker.provider.bodies[-1]
    assert results_of(body) == [("a", "of a"), ("b", "of b")]
    assert "are you there?" in json.dumps(body["messages"][-1])


async def test_empty_texts_are_never_sent(asker: Asker):
    await asker.ask(
        Message.system(" "),
        Message.assistant("  "),
        Message.user(" "),
        Message.assistant(" ", tool_calls=[ToolCall(id="a", name="x")]),
        Message.tool("", tool_call_id="a"),
        Message.user("go on"),
    )
    assert asker.provider.bodies[-1]["messages"]


async def test_a_conversation_may_begin_with_the_assistant(asker: Asker):
    await asker.ask(Message.assistant("What can I do for you?"), Message.user("Refund 7."))
    assert len(asker.provider.requests) == 1


# --- what the limit of tokens cuts off -------------------------------------------------------


async def test_no_call_of_an_answer_that_hit_the_token_limit_may_run(asker: Asker):
    asker.script(
        Answer(
            text="I will",
            calls=[Call(id="a"), Call(id="b", arguments='{"amount": 12}')],
            finish="length",
        )
    )

    answer = await asker.ask()

    assert answer.extra["finish"] == "length"
    assert answer.extra["at_limit"] is True
    assert [call.extra.get("cut") for call in answer.tool_calls] == [True, True]


async def test_a_cut_call_is_marked_even_where_the_server_hides_the_cut(asker: Asker):
    calls = [Call(arguments='{"amount": 12}')]
    asker.script(Answer(calls=calls, finish="tool_calls", usage=(10, 64)))

    answer = await asker.ask(max_tokens=64)

    assert answer.extra["finish"] in ("tool_call", "stop")
    assert answer.extra["at_limit"] is True
    assert answer.tool_calls[0].extra["cut"] is True


async def test_a_text_at_the_limit_is_kept_and_flagged(asker: Asker):
    asker.script(Answer(text="The beginning of", finish="length"))

    answer = await asker.ask()

    assert (answer.content, answer.extra["at_limit"]) == ("The beginning of", True)
    assert len(asker.provider.requests) == 1


async def test_a_filtered_answer_runs_no_call(asker: Asker):
    reason = "refusal" if asker.protocol == "anthropic" else "content_filter"
    asker.script(Answer(text="So", calls=[Call()], finish=reason))

    answer = await asker.ask()

    assert answer.tool_calls[0].extra["cut"] is True


# --- money -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stored_as"),
    [
        ('{"amount": 12.10}', {"amount": 12.1}),
        ('{"amount": "12.10"}', {"amount": "12.10"}),
        ('{"amount": 100000000000000000000}', {"amount": 100000000000000000000}),
        # A float would change these, so they stay the text they were.
        ('{"amount": 1234567890123456.789}', '{"amount": 1234567890123456.789}'),
        ('{"amount": 1e400}', '{"amount": 1e400}'),
    ],
)
async def test_numbers_are_kept_exactly_or_as_text(streamer: Asker, text: str, stored_as):
    streamer.script(Answer(calls=[Call(arguments=text)]))
    [call] = (await streamer.ask()).tool_calls
    assert call.arguments == stored_as
