"""The refund story where a provider's model writes: `OPENAI_BASE_URL` is a server that speaks the
protocol. Seen while it is written, in a real browser; killed where the model's answer may be lost.
"""

import re
import signal
import threading

import pytest
from playwright.sync_api import expect

from agentruntime.demo.scripted import support_model
from agentruntime.models import Message, ToolExecution
from approvals.models import Approval
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Halted
from tests.llm.scripts import demanding, served
from tests.stories.browser import STORY, open_decision, state, talk, write
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.stories,
    pytest.mark.database("sqlite"),
]

REFUND = "Refund 49.90 for order 1042"
ASKS_FOR_REFUND = "I will ask for the refund."
TOLD = "Your refund of 49.90 EUR for order 1042"


class Desk:
    """The demo's own model behind the protocol, which wants back what it has sealed each call with;
    an answer of these words is told by halves.
    """

    def __init__(self):
        self.halt_at, self.go_on = "", threading.Event()
        self._script = demanding(served(support_model))

    def __call__(self, body):
        answer = self._script(body)
        halts = self.halt_at and self.halt_at in (answer.text or "") and not self.go_on.is_set()
        return Halted(answer, self.go_on) if halts else answer


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def provider(desk, settings):
    settings.DEMO_MODEL_DELAY = 0
    with FakeProvider(desk, split=11) as running:
        yield running
        desk.go_on.set()


@pytest.fixture
def demo_environment(provider):
    return {"OPENAI_BASE_URL": provider.openai_url}


@pytest.fixture
def sound(provider, demo):
    """Says that the story came to its one right end, and that `times` requests told it."""

    def check(times):
        assert [(one["kind"], one["amount"]) for one in demo.paid()] == [("refund", "49.90")]
        assert Approval.objects.count() == 1
        tools = ToolExecution.objects.order_by("id").values_list("tool", "status", "attempts")
        assert list(tools) == [("lookup_order", "succeeded", 1), ("refund", "succeeded", 1)]
        told = Message.objects.order_by("ordinal").values_list("role", "content")
        assert [role for role, _ in told] == [
            "user", "assistant", "tool", "assistant", "tool", "assistant",
        ]  # fmt: skip
        assert told[3][1] == ASKS_FOR_REFUND
        assert told[5][1].startswith(TOLD)
        assert len(provider.requests) == times
        assert {one.body["stream"] for one in provider.requests} == {True}

    return check


def writing(page):
    """What the page shows of an answer that is not finished."""
    return page.locator("#writing")


def approve(log_in):
    lead = log_in("lead", "/admin/")
    open_decision(lead, REFUND)
    lead.locator("button[value=approve]").click()
    return lead


def finished(sam):
    expect(talk(sam, TOLD)).to_be_visible()
    expect(state(sam)).to_have_text("Completed")


def test_an_answer_is_seen_while_it_is_written(demo, log_in, desk, sound):
    desk.halt_at = TOLD
    sam = log_in("sam")
    write(sam, STORY)
    expect(state(sam)).to_have_text("Waiting for a person")
    assert demo.paid() == []

    approve(log_in)
    expect(writing(sam)).to_have_text(re.compile("^Your refund of 49.90"))
    half = writing(sam).inner_text()
    expect(state(sam)).not_to_have_text("Completed")
    assert not Message.objects.filter(content__startswith=TOLD).exists()

    desk.go_on.set()
    finished(sam)
    whole = Message.objects.get(content__startswith=TOLD).content
    assert whole.startswith(half.strip())
    assert len(half) < len(whole)
    sound(times=3)


@pytest.mark.parametrize("words", [ASKS_FOR_REFUND, TOLD])
def test_killed_in_the_middle_of_a_stream_no_half_is_kept(demo, log_in, desk, sound, words):
    """Once with half of a call told, once after the money has moved."""
    desk.halt_at = words
    sam = log_in("sam")
    write(sam, STORY)
    if words == TOLD:
        expect(state(sam)).to_have_text("Waiting for a person")
        approve(log_in)
    expect(writing(sam)).to_have_text(re.compile(f"^{re.escape(words[:15])}"))

    demo.process.kill()
    desk.go_on.set()
    assert not Message.objects.filter(content__startswith=words).exists()
    demo.start()

    if words == ASKS_FOR_REFUND:
        expect(state(sam)).to_have_text("Waiting for a person")
        approve(log_in)
    finished(sam)
    expect(talk(sam, words)).to_have_count(1)
    sound(times=4)


@pytest.mark.parametrize(
    ("point", "times"),
    [("P5:3", 4), ("P6:2", 3)],
    ids=["between-answer-and-checkpoint", "between-checkpoint-and-tools"],
)
def test_killed_around_the_checkpoint_of_an_answer(demo, log_in, sound, point, times):
    """The third step is the answer that asks for the refund. One that was not stored is asked for
    again; one that was stored is not, and its call is made once.
    """
    demo.process.kill()
    dying = demo.start(AGENTRUNTIME_CRASH=point)
    sam = log_in("sam")
    write(sam, STORY)
    wait_until(lambda: dying.process.poll() is not None, 30, f"death at {point}")
    assert dying.process.returncode == -signal.SIGKILL
    assert Message.objects.filter(content=ASKS_FOR_REFUND).exists() is (times == 3)
    assert not ToolExecution.objects.filter(tool="refund").exists()
    demo.start()

    expect(state(sam)).to_have_text("Waiting for a person")
    approve(log_in)
    finished(sam)
    sound(times)
