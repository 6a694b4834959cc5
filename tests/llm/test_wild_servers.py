"""Whatever a server sends, asking it ends as one storable message or as one error of ours."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentruntime import llm
from agentruntime.exceptions import ModelError
from agentruntime.graph import Message
from agentruntime.graph.json_values import check_json
from agentruntime.llm.payload import sendable
from tests.llm.conftest import KEY
from tests.llm.fake_server import FakeProvider
from tests.llm.payloads import check_messages
from tests.llm.replies import Raw

text = st.sampled_from(["", " ", "hello", "ü", "\x00", "\ud800", '{"a":1}', "null", "[]", "{"])
junk = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), text, st.lists(text, max_size=2))
anything = st.one_of(text, junk, st.dictionaries(text, junk, max_size=2))


def objects(**fields):
    """Objects with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def mostly(sound, *wild):
    """Mostly what the protocol says; one time in six something else."""
    return st.integers(0, 5).flatmap(lambda n: sound if n else st.one_of(*wild, anything))


name = st.sampled_from(["look", "refund"])
ident = st.sampled_from(["call_1", "call_2", ""])
pieces = st.sampled_from(["", "{", '"a"', ":", "1", "}", '{"a":1}', "null", '{"a":"\\ud800"}', "ü"])
function = objects(name=mostly(name), arguments=mostly(pieces), more=anything)
one_call = objects(
    index=mostly(st.integers(0, 2)),
    id=mostly(ident),
    type=mostly(st.just("function"), st.just("custom")),
    function=mostly(function),
    signature=anything,
)
said = objects(
    content=mostly(text, st.none()),
    tool_calls=st.one_of(st.none(), st.lists(mostly(one_call), max_size=3)),
    refusal=st.none(),
    reasoning_content=text,
    mystery=anything,
)
finish = st.sampled_from(["stop", "length", "tool_calls", None, "eos", ""])
usage = st.sampled_from([None, {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}])
HEAD = {"id": "c-1", "model": "m", "created": 1, "object": "chat.completion.chunk"}
ENDING = {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def chunk_of(delta, reason, tokens):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**HEAD, "choices": [choice], "usage": tokens}


chunks = st.lists(st.builds(chunk_of, said, finish, usage), max_size=6).map(
    lambda found: [*found, ENDING]
)


def completion_of(message, reason, tokens):
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
    choices = [{**choice, "finish_reason": reason}]
    return {**HEAD, "object": "chat.completion", "choices": choices, "usage": tokens}


completions = st.builds(completion_of, said, finish, usage)


def block_of(kind, **fields):
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


use = {"id": mostly(ident), "name": mostly(name)}
blocks = {
    "text": block_of("text", text=text),
    "thinking": block_of("thinking", thinking=text, signature=text),
    "tool_use": block_of("tool_use", input=mostly(st.dictionaries(text, junk, max_size=2)), **use),
    "unheard_of": block_of("unheard_of", data=anything),
}
changes = {
    "text": st.builds(lambda one: {"type": "text_delta", "text": one}, text),
    "thinking": st.one_of(
        st.builds(lambda one: {"type": "thinking_delta", "thinking": one}, text),
        st.builds(lambda one: {"type": "signature_delta", "signature": one}, text),
    ),
    "tool_use": st.builds(
        lambda one: {"type": "input_json_delta", "partial_json": one}, mostly(pieces)
    ),
    "unheard_of": st.just({"type": "unheard_of_delta"}),
}
kinds = st.sampled_from(sorted(blocks))
stop = st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal", "unheard_of"])
tokens = st.just({"input_tokens": 3, "output_tokens": 4})


def message_of(blocks, reason, tokens):
    said = {"id": "m-1", "type": "message", "role": "assistant", "model": "m"}
    return {**said, "content": blocks, "stop_reason": reason, "usage": tokens}


content = st.lists(kinds.flatmap(lambda kind: blocks[kind]), max_size=4)
messages = st.builds(message_of, content, stop, tokens)
written = st.lists(
    kinds.flatmap(lambda kind: st.tuples(blocks[kind], st.lists(changes[kind], max_size=4))),
    max_size=4,
)


def events_of(begun, reason, used):
    events = [{"type": "message_start", "message": message_of([], None, used)}]
    for index, (start, deltas) in enumerate(begun):
        start = {**start, "input": {}} if start["type"] == "tool_use" else start
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": index})
    change = {"stop_reason": reason, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": change, "usage": used}]


streams = st.builds(events_of, written, stop, tokens)

wild = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def ask(provider, kind, body, content_type, streaming):
    async def go():
        made = {kind: llm.Provider(kind=kind, base_url=provider.base_url(kind), api_key=KEY)}
        # Above a limit the library streams by itself what was not asked to be streamed.
        options = llm.ModelOptions(providers=made, attempts=1, max_tokens=4096)
        on_delta = (lambda told: None) if streaming else None
        try:
            return await llm.complete(
                f"{kind}:claude-opus-5",
                [Message.user("hello")],
                options=options,
                on_delta=on_delta,
                deadline=None,
            )
        finally:
            await llm.close_clients()

    provider.script = lambda asked: Raw(body, content_type)
    try:
        answer = asyncio.run(go())
    except ModelError:
        return
    stored = json.loads(json.dumps(answer.model_dump(mode="json")))
    check_json(stored)
    check_messages(sendable([Message.user("hello"), Message.model_validate(stored)]))


def as_stream(events, named):
    lines = []
    for one in events:
        name = f"event: {one['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(one)}\n\n")
    return ("".join(lines) + ("" if named else "data: [DONE]\n\n")).encode()


@pytest.fixture
def wild_provider():
    with FakeProvider(strict=False) as running:
        yield running


@wild
@given(chunks)
def test_any_stream_of_chunks(wild_provider, given_chunks):
    ask(wild_provider, "openai", as_stream(given_chunks, False), "text/event-stream", True)


@wild
@given(completions)
def test_any_completion(wild_provider, body):
    ask(wild_provider, "openai", json.dumps(body).encode(), "application/json", False)


@wild
@given(streams)
def test_any_stream_of_events(wild_provider, events):
    ask(wild_provider, "anthropic", as_stream(events, True), "text/event-stream", True)


@wild
@given(messages)
def test_any_message(wild_provider, body):
    ask(wild_provider, "anthropic", json.dumps(body).encode(), "application/json", False)
