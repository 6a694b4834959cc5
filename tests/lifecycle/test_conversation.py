"""A claim reads of a conversation only what this process or the cache does not have, and whatever
they hold, what it works with is what the database says.
"""

import uuid

import pytest
from django.db import connection

from agentruntime import cache
from agentruntime.graph import Message, interrupt, tool
from agentruntime.graph.agent import create_agent
from agentruntime.lifecycle import conversation, resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Checkpoint, Interrupt, Thread
from tests.agents import agent, call, registered


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """What this process keeps: nothing yet."""
    fresh = conversation._Kept()
    monkeypatch.setattr(conversation, "_kept", fresh)
    return fresh


@pytest.fixture
def loads(monkeypatch):
    """What is read of the database: (after, up_to)."""
    asked, load = [], conversation.load_messages

    def noted(thread_id, after=0, up_to=None):
        asked.append((after, up_to))
        return load(thread_id, after=after, up_to=up_to)

    monkeypatch.setattr(conversation, "load_messages", noted)
    return asked


@pytest.fixture
def talk():
    """Sends a message on the thread and gives what the model was shown."""
    shown = []

    def model(messages, tools):
        shown.append([one.content for one in messages])
        return Message.assistant(f"answer to {messages[-1].content}")

    with registered(create_agent(model=model, tools=[])) as name:

        def say(text, thread=None):
            run = start_run(graph=name, input=text, thread_id=thread)
            execute(run.pk)
            run.refresh_from_db()
            assert run.status == "completed"
            return run.thread_id, shown[-1]

        yield say


def three_turns(talk):
    """One thread with three turns: 6 messages, 2 versions each."""
    thread, _ = talk("one")
    talk("two", thread)
    talk("three", thread)
    return thread


EVERYTHING = ["one", "answer to one", "two", "answer to two", "three", "answer to three", "four"]


def test_what_is_kept_is_gone_on_from_and_only_the_rest_is_read(talk, loads):
    thread = three_turns(talk)
    loads.clear()
    assert talk("four", thread)[1] == EVERYTHING
    # On PostgreSQL the claim brings an input along.
    assert loads == ([] if connection.vendor == "postgresql" else [(6, None)])


@pytest.mark.parametrize("count", [1, 8, 9, 30])
def test_an_input_of_many_messages_is_read_whole(count):
    shown = []

    def model(messages, tools):
        shown[:] = [one.content for one in messages]
        return Message.assistant("well")

    said = [f"message {number}" for number in range(count)]
    with registered(create_agent(model=model, tools=[])) as name:
        run = start_run(graph=name, input={"messages": said})
        execute(run.pk)
        assert shown == said
        execute(start_run(graph=name, input={"messages": said}, thread_id=run.thread_id).pk)
        assert shown == [*said, "well", *said]


def head(thread):
    return Thread.objects.get(pk=thread).head_version


def nothing(kept, thread):
    """Another process had the runs."""
    kept.take(thread, 10**6)
    cache.forget(thread, head(thread))


def an_early_version(kept, thread):
    """This process had the first run, another one the others."""
    messages = kept.take(thread, 10**6)
    kept.put(thread, 2, messages[:2])


def the_future(kept, thread):
    """A version that is not there: the database was set back, or its worker was fenced out."""
    kept.put(thread, 99, [Message.user("from nowhere")])


def too_many(kept, thread):
    """More messages than the thread has."""
    kept.put(thread, 2, [Message.user("from nowhere")] * 50)


@pytest.mark.parametrize("spoil", [nothing, an_early_version, the_future, too_many])
def test_whatever_is_kept_the_model_is_shown_what_is_stored(talk, kept, spoil):
    thread = three_turns(talk)
    spoil(kept, thread)
    assert talk("four", thread)[1] == EVERYTHING


def test_a_thread_has_one_entry_over_all_its_runs(talk, kept):
    thread = three_turns(talk)
    assert entries(thread) == [head(thread)]
    assert list(kept._kept) == [thread]


def entries(thread):
    """The versions of which the cache has an entry."""
    versions = Checkpoint.objects.filter(thread=thread).values_list("version", flat=True)
    return [one for one in versions if cache.recall(thread, one)]


def test_a_run_that_paused_leaves_one_entry(drive):
    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?")

    with agent([ask], [call("ask")]) as name:
        run = drive(name)
        paused_at = head(run.thread_id)
        assert entries(run.thread_id) == [paused_at]
        resume_run(interrupt_id=Interrupt.objects.get(run=run).pk, value="yes")
        drive(run=run)
    assert entries(run.thread_id) == [head(run.thread_id)] != [paused_at]


def an_entry_of_another_count(entry):
    return {**entry, "count": entry["count"] - 1, "messages": entry["messages"][:-1]}


def an_entry_of_nonsense(entry):
    return {**entry, "messages": [{"role": 5}]}


@pytest.mark.parametrize("spoilt", [an_entry_of_another_count, an_entry_of_nonsense])
def test_a_run_that_goes_on_elsewhere_trusts_no_entry_that_does_not_fit(kept, spoilt):
    shown = []

    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?")

    def model(messages, tools):
        shown.append([one.role for one in messages])
        answered = messages[-1].role == "tool"
        return Message.assistant("done" if answered else "", tool_calls=[] if answered else calls)

    calls = [call("ask")]
    with registered(create_agent(model=model, tools=[ask])) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        kept.take(run.thread_id, 10**6)  # another process has it from here
        paused_at = head(run.thread_id)
        cache.remember(run.thread_id, paused_at, spoilt(cache.recall(run.thread_id, paused_at)))
        resume_run(interrupt_id=Interrupt.objects.get(run=run).pk, value="yes")
        execute(run.pk)
    assert shown[-1] == ["user", "assistant", "tool"]


def test_a_process_keeps_so_many_messages_and_the_newest_threads(kept, monkeypatch):
    monkeypatch.setattr(conversation, "MOST_MESSAGES", 10)
    threads = [uuid.uuid4() for _ in range(4)]
    for thread in threads:
        kept.put(thread, 1, [Message.user("hello")] * 4)
    kept.put(uuid.uuid4(), 1, [Message.user("hello")] * 6)  # too long to be kept at all
    assert [thread for thread in threads if kept.take(thread, 1)] == threads[2:]
    assert kept._count == 0


def test_a_kept_conversation_is_handed_out_once(kept):
    thread = uuid.uuid4()
    kept.put(thread, 3, [Message.user("hello")])
    assert kept.take(thread, 2) is None  # it is newer than what is asked for, and goes
    kept.put(thread, 3, [Message.user("hello")])
    assert len(kept.take(thread, 5)) == 1
    assert kept.take(thread, 5) is None
