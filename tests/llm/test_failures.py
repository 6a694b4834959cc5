"""When a provider fails: again where that can help, counted, in time; never half an answer."""

import asyncio
import contextlib
import logging
import time

import pytest

from agentruntime import exceptions, llm
from agentruntime.graph import Message
from tests.llm.conftest import KEY, MODELS, Asker
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Call, Cut, Failure, Raw, Silence

GOOD = Answer(text="Here you are.", calls=[Call(id="a", arguments='{"order_id": "7"}')])
PASSING = [
    (Failure(429), exceptions.ModelRateLimited),
    (Failure(500), exceptions.ModelUnavailable),
    (Failure(502, b"<html>bad gateway</html>"), exceptions.ModelUnavailable),
    (Failure(503), exceptions.ModelUnavailable),
    (Failure(529), exceptions.ModelUnavailable),
    (Failure(408), exceptions.ModelUnavailable),
    (Cut(GOOD, 0.0), exceptions.ModelUnreachable),
    (Cut(GOOD, 0.5), exceptions.ModelUnreachable),
    (Raw(b"this is no JSON"), exceptions.ModelError),
    (Raw(b""), exceptions.ModelError),
    (Raw(b"{}"), exceptions.ModelError),
]
FINAL = [
    (Failure(400), exceptions.ModelRequestRefused),
    (Failure(413), exceptions.ModelRequestRefused),
    (Failure(422), exceptions.ModelRequestRefused),
    (Failure(401), exceptions.ModelCredentialsRefused),
    (Failure(403), exceptions.ModelCredentialsRefused),
    (Failure(404), exceptions.ModelUnknown),
]


def named(pair):
    reply, error = pair
    detail = getattr(reply, "status", getattr(reply, "share", getattr(reply, "body", b"")))
    return f"{type(reply).__name__}-{detail}-{error.__name__}"


@pytest.mark.parametrize("pair", PASSING, ids=named)
async def test_a_failure_that_passes_is_asked_through(asker: Asker, pair):
    asker.script(GOOD)
    asker.provider.fail(pair[0], pair[0])

    answer = await asker.ask()

    assert answer.content == "Here you are."
    assert len(answer.tool_calls) == 1
    assert answer.extra["attempts"] == len(asker.provider.requests) == 3
    assert [retry.attempt for retry in asker.retries] == [1, 2]


@pytest.mark.parametrize("pair", PASSING, ids=named)
async def test_a_failure_that_does_not_pass_ends_with_its_error(asker: Asker, pair):
    asker.script(pair[0])

    with pytest.raises(pair[1]) as raised:
        await asker.ask(attempts=2)

    assert raised.value.facts["attempts"] == len(asker.provider.requests) == 2
    assert raised.value.passing is True


@pytest.mark.parametrize("pair", FINAL, ids=named)
async def test_what_asking_again_cannot_help_is_asked_once(asker: Asker, pair):
    asker.script(pair[0])

    with pytest.raises(pair[1]):
        await asker.ask()

    assert len(asker.provider.requests) == 1
    assert asker.retries == []


@pytest.mark.parametrize("split", [0, 1, 11])
@pytest.mark.parametrize("how", ["close", "end", "error"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
async def test_a_cut_stream_leaves_nothing_behind(streamer: Asker, how, share, split):
    streamer.provider.split = split
    streamer.script(Cut(GOOD, share, how))

    with pytest.raises(exceptions.ModelError):
        await streamer.ask(attempts=1)


async def test_a_redirect_is_not_followed(asker: Asker):
    with FakeProvider() as elsewhere:
        asker.script(Failure(307, headers={"Location": elsewhere.openai_url}))
        with pytest.raises(exceptions.ModelError):
            await asker.ask(attempts=1)
        assert elsewhere.requests == []


async def test_what_was_told_before_a_cut_is_declared_void(streamer: Asker):
    heard: list[object] = []
    streamer.script(Answer(text="Another text."))
    streamer.provider.fail(Cut(Answer(text="A text that breaks off" * 5), 0.7))

    answer = await llm.complete(
        streamer.model,
        [Message.user("hello")],
        options=streamer.options(),
        on_delta=heard.append,
        on_retry=heard.append,
    )

    void = next(n for n, one in enumerate(heard) if isinstance(one, llm.Retry))
    assert "".join(heard[:void]).startswith("A text")
    assert "".join(heard[void + 1 :]) == answer.content == "Another text."


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"Retry-After": "1"}, 1.0), ({"retry-after-ms": "150"}, 0.15)]
)
async def test_a_provider_is_given_the_time_it_asks_for(asker: Asker, headers, seconds):
    asker.provider.fail(Failure(429, headers=headers))
    asker.script(GOOD)
    started = time.monotonic()

    with contextlib.suppress(exceptions.ModelRateLimited):  # there is no time for a whole second
        await asker.ask(deadline=started + 0.9)

    assert [one.wait >= seconds for one in asker.retries] == [True] * (seconds < 0.9)
    assert seconds > 0.9 or time.monotonic() - started >= seconds


async def test_a_provider_that_asks_for_too_much_time_is_not_waited_for(asker: Asker):
    asker.script(Failure(429, headers={"Retry-After": "3600"}))

    with pytest.raises(exceptions.ModelRateLimited):
        await asker.ask()

    assert len(asker.provider.requests) == 1


async def test_an_account_that_is_used_up_is_not_asked_again(asker: Asker):
    said = {"code": "insufficient_quota", "type": "billing_error", "message": "no credit"}
    asker.script(Failure(429, {"type": "error", "error": said}))

    with pytest.raises(exceptions.ModelQuotaExceeded):
        await asker.ask()

    assert len(asker.provider.requests) == 1


async def test_a_conversation_that_is_too_long_has_an_error_of_its_own(asker: Asker):
    said = {
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
        "message": "prompt is too long: 300000 tokens > 200000 maximum",
    }
    asker.script(Failure(400, {"type": "error", "error": said}))
    with pytest.raises(exceptions.ModelContextExceeded):
        await asker.ask()


# --- the deadline ----------------------------------------------------------------------------


async def test_a_silent_provider_is_cut_off_at_the_deadline(asker: Asker):
    asker.script(Silence(5))
    started = time.monotonic()

    with pytest.raises(exceptions.ModelTimedOut):
        await asker.ask(deadline=time.monotonic() + 0.3)

    assert time.monotonic() - started < 2


async def test_a_stream_that_falls_silent_is_cut_off_at_the_deadline(streamer: Asker):
    streamer.script(Silence(5, Answer(text="I begin and then")))

    with pytest.raises(exceptions.ModelTimedOut):
        await streamer.ask(deadline=time.monotonic() + 0.5)

    assert "".join(streamer.deltas).startswith("I be")


async def test_silence_within_the_deadline_is_bounded_too(asker: Asker):
    asker.script(Silence(5))
    with pytest.raises(exceptions.ModelUnreachable):
        await asker.ask(silence_timeout=0.2, attempts=1)


async def test_nobody_waits_beyond_the_deadline(asker: Asker):
    asker.script(Failure(503, headers={"Retry-After": "3"}))
    started = time.monotonic()

    with pytest.raises(exceptions.ModelUnavailable):
        await asker.ask(deadline=time.monotonic() + 1.5)

    assert time.monotonic() - started < 1
    assert len(asker.provider.requests) == 1


async def test_past_the_deadline_nobody_is_asked(asker: Asker):
    with pytest.raises(exceptions.ModelTimedOut):
        await asker.ask(deadline=time.monotonic() - 1)
    assert asker.provider.requests == []


async def test_a_cancelled_request_ends_at_once(streamer: Asker):
    streamer.script(Silence(5, Answer(text="I begin and then")))
    task = asyncio.ensure_future(streamer.ask())
    while not streamer.deltas:
        await asyncio.sleep(0.01)

    task.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert time.monotonic() - started < 1


# --- the chain -------------------------------------------------------------------------------


def chain_options(**providers: FakeProvider) -> llm.ModelOptions:
    made = {
        name: llm.Provider(base_url=provider.openai_url, api_key=KEY)
        for name, provider in providers.items()
    }
    return llm.ModelOptions(providers=made, first_wait=0.01, attempts=2)


@pytest.fixture
def second():
    with FakeProvider(lambda body: Answer(text="the second answers")) as running:
        yield running


@pytest.mark.parametrize("status", [429, 500, 401, 404])
async def test_the_next_model_answers_where_the_first_cannot(provider, second, status):
    provider.script = lambda body: Failure(status)
    retries: list[llm.Retry] = []

    answer = await llm.complete(
        "first:a, second:b:latest",
        [Message.user("hello")],
        options=chain_options(first=provider, second=second),
        on_retry=retries.append,
    )

    assert answer.content == "the second answers"
    assert answer.extra["model"] == "second:b:latest"
    assert second.bodies[0]["model"] == "b:latest"
    assert answer.extra["attempts"] == len(provider.requests) + 1
    assert retries[-1].model == "second:b:latest"


async def test_a_request_that_is_refused_is_not_sent_elsewhere(provider, second):
    provider.script = lambda body: Failure(400)
    with pytest.raises(exceptions.ModelRequestRefused):
        await llm.complete(
            "first:a,second:b",
            [Message.user("hello")],
            options=chain_options(first=provider, second=second),
        )
    assert second.requests == []


async def test_a_chain_that_fails_altogether_ends_with_the_last_error(provider, second):
    provider.script = lambda body: Failure(500)
    second.script = lambda body: Failure(429)
    with pytest.raises(exceptions.ModelRateLimited) as raised:
        await llm.complete(
            "first:a,second:b",
            [Message.user("hello")],
            options=chain_options(first=provider, second=second),
        )
    assert raised.value.facts["attempts"] == 4


# --- what an error tells ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_no_error_and_no_log_line_holds_a_secret(asker: Asker, status, caplog):
    caplog.set_level(logging.INFO)
    said = f"Incorrect key {KEY}, Authorization: Bearer {KEY}, other key sk-proj-ABCDEFGH1234"
    asker.script(Failure(status, said))

    with pytest.raises(exceptions.ModelError) as raised:
        await asker.ask(attempts=1)

    told = str(raised.value) + repr(raised.value) + repr(raised.value.facts) + caplog.text
    assert KEY not in told
    assert "sk-proj-ABCDEFGH1234" not in told
    assert "Incorrect key [hidden]" in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ is True


def test_options_do_not_show_their_key():
    options = llm.ModelOptions(
        providers={"openai": llm.Provider(api_key=KEY, headers={"X-Key": KEY})}
    )
    assert KEY not in repr(options)


async def test_an_error_names_the_model_and_the_status(asker: Asker):
    asker.script(Failure(400, "the tool 'x' has no schema"))
    with pytest.raises(exceptions.ModelRequestRefused) as raised:
        await asker.ask()
    assert raised.value.code == "MODEL_004"
    assert asker.model in str(raised.value)
    assert "HTTP 400" in str(raised.value)
    assert "the tool 'x' has no schema" in str(raised.value)


def test_the_codes_of_the_family_are_distinct():
    family = [exceptions.ModelError, *exceptions.ModelError.__subclasses__()]
    assert len({one.code for one in family}) == len(family)


async def test_a_listener_that_fails_does_not_cost_the_answer(asker: Asker, caplog):
    def broken(told: object) -> None:
        raise RuntimeError("no socket")

    asker.script(Answer(text="Here you are."))
    asker.provider.fail(Failure(500))

    answer = await llm.complete(
        asker.model,
        [Message.user("hello")],
        options=asker.options(),
        on_delta=broken if asker.streaming else None,
        on_retry=broken,
    )

    assert answer.content == "Here you are."


async def test_an_unknown_model_name_is_said_before_anyone_is_asked(provider):
    options = chain_options(openai=provider)
    for text, word in [
        ("gpt-5", "provider:name"),
        ("openai:", "provider:name"),
        ("", "provider:name"),
        ("openai:a,,openai:b", "provider:name"),
        ("nobody:a", "openai"),
    ]:
        with pytest.raises(exceptions.InvalidModel, match=word):
            llm.client_for(text, options)
    keyless = llm.ModelOptions(providers={"openai": llm.Provider()})
    with pytest.raises(exceptions.InvalidModel, match="no API key"):
        llm.client_for("openai:gpt-5", keyless)
    assert provider.requests == []
    assert set(MODELS) == {"openai", "openai-responses", "anthropic"}
