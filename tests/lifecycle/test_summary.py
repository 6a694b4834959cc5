"""A long conversation told in short: a step of its own, between turns, that is not taken twice."""

import pytest

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph import Message, State, Summarize, create_agent, tool
from agentruntime.lifecycle import start_run
from agentruntime.models import Checkpoint
from tests.agents import call, registered
from tests.llm.payloads import check_messages

LONG = "word " * 60


@tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order} {LONG}"


class Talker:
    """Remembers what it was asked, calls once a turn, and answers with how much it was shown."""

    def __init__(self):
        self.shown, self.summed_up = [], []

    def __call__(self, messages, tools):
        if not tools:
            self.summed_up.append(messages)
            return Message.assistant(f"SUMMARY {len(self.summed_up)}")
        check_messages(messages)
        self.shown.append(messages)
        if messages[-1].role == "tool":
            return Message.assistant(f"answer {LONG}")
        return Message.assistant(tool_calls=[call("look_up", order="1042")])


def nodes_of(run):
    steps = Checkpoint.objects.filter(run_id=run.pk).order_by("version")
    return [one.next_node for one in steps]


def test_old_messages_are_summed_up_in_a_step_of_its_own(drive):
    talker = Talker()
    graph = create_agent(model=talker, tools=[look_up], context=Summarize(400, keep=150))
    with registered(graph) as name:
        runs = [drive(name, "question 1")]
        for n in range(2, 8):
            again = start_run(graph=name, input=f"question {n}", thread_id=runs[0].thread_id)
            runs.append(drive(run=again))
    assert {run.status for run in runs} == {"completed"}
    taken = [node for run in runs for node in nodes_of(run) if node == "summary"]
    assert len(taken) == len(talker.summed_up) > 1
    last = talker.shown[-1]
    assert f"SUMMARY {len(talker.summed_up)}" in last[0].content
    assert "SUMMARY 1" in talker.summed_up[1][1].content, "the summary before is a part of it"
    assert "question 7" in [one.content for one in last]
    assert len(last) < len(talker.shown[0]) + 4
    for asked in talker.summed_up:
        assert [one.role for one in asked] == ["system", "user"]


def test_a_summary_that_failed_is_asked_for_again_and_nothing_else(drive):
    failing = [True]
    talker = Talker()

    def sums_up(messages, tools):
        if failing:
            raise ConnectionError("away")
        return talker(messages, tools)

    context = Summarize(100, keep=20, model=sums_up)
    with registered(create_agent(model=talker, tools=[look_up], context=context)) as name:
        run = drive(name)
        assert (run.status, run.error_code) == ("failed", "NODE_FAILED_001")
        asked = len(talker.shown)
        failing.clear()
        from agentruntime.lifecycle import retry_run

        retry_run(run_id=run.pk)
        run = drive(run=run)
    assert run.status == "completed"
    assert len(talker.shown) == asked + 1, "only what came after the summary"


@pytest.mark.parametrize("said", ["", "  \n"])
def test_an_empty_summary_leaves_the_old_messages_out(said):
    policy = Summarize(60, keep=20)
    kind = policy.state(State)
    turns = [(Message.user(f"q{n} {LONG}"), Message.assistant(f"a{n}")) for n in range(3)]
    state = kind(messages=[one for turn in turns for one in turn])
    assert policy.is_due(state)
    after = state.model_copy(update=policy.result(state, Message.assistant(said)))
    assert not policy.is_due(after)
    assert [one.content[:2] for one in policy.shown(after)] == ["q2", "a2"]


def test_nothing_is_summed_up_while_a_call_waits():
    policy = Summarize(10, keep=0)
    waiting = Message.assistant(LONG, tool_calls=[call("look_up")])
    state = policy.state(State)(messages=[Message.user(LONG), Message.user(LONG), waiting])
    assert not policy.is_due(state)


def test_a_state_that_has_a_summary_of_its_own_is_refused():
    class Mine(State):
        summary: str = ""

    with pytest.raises(InvalidGraph):
        create_agent(model=Talker(), state=Mine, context=Summarize(10))
