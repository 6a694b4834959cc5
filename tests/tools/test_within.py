"""Long jobs and calls that the client runs, wherever they are made: in branches side by side, in a
subgraph, by an agent that another one asks. Each is started once and ends at its own step.
"""

import pytest

from agentruntime.graph import (
    END,
    START,
    Message,
    Send,
    State,
    StateGraph,
    ToolNode,
    agent_tool,
    create_agent,
)
from agentruntime.lifecycle import resume_run
from agentruntime.lifecycle.callbacks import take_callback
from agentruntime.models import ToolExecution
from tests.agents import asks_for, call, registered
from tests.tools import farm

BOTH = [
    call("render", "job", scene="cow", wait="callback"),
    call("pick_colour", "client", among=[]),
]


class Items(State):
    item: str = ""


def caller(state):
    """A node of a branch: asks for a job and for the client, under ids that all branches use."""
    return Message.assistant("", tool_calls=BOTH)


def in_branches():
    inner = StateGraph(Items)
    inner.add_node("ask", caller).add_node("act", ToolNode([farm.render, farm.pick]))
    inner.add_edge(START, "ask").add_edge("ask", "act").add_edge("act", END)
    graph = StateGraph(Items).add_node("one", inner).add_node("end", lambda state: None)
    sends = [Send("one", {"item": "x"}), Send("one", {"item": "y"})]
    graph.add_conditional_edges(START, lambda state: sends, ["one"])
    return graph.add_edge("one", "end").add_edge("end", END)


def worker():
    return create_agent(model=asks_for(BOTH), tools=[farm.render, farm.pick])


def in_a_subgraph():
    graph = StateGraph(State).add_node("worker", worker())
    return graph.add_edge(START, "worker").add_edge("worker", END)


def by_an_inner_agent():
    asked = agent_tool(worker(), "worker", "Works.")
    return create_agent(model=asks_for([call("worker", "c", message="go")]), tools=[asked])


@pytest.mark.parametrize(
    ("graph", "times"), [(in_branches, 2), (in_a_subgraph, 1), (by_an_inner_agent, 1)]
)
@pytest.mark.parametrize("first", ["job", "client"])
def test_both_end_at_their_own_step_and_nothing_is_started_twice(drive, look, graph, times, first):
    from agentruntime.lifecycle.callbacks import callback_url

    def call_back(run):
        for row in ToolExecution.objects.filter(run=run, tool="render"):
            token = callback_url(row.pk).rstrip("/").rpartition("/")[2]
            take_callback(token, {"result": f"picture {row.pk}"})

    def answer(run):
        for one in look.open(run):
            resume_run(interrupt_id=one.pk, value={"name": one.payload["call_key"]})

    with registered(graph()) as name:
        run = drive(name)
        assert not run.has_ended
        assert len(look.open(run)) == times == len(farm.lines("jobs"))
        for end in (call_back, answer) if first == "job" else (answer, call_back):
            assert not run.has_ended
            end(run)
            run = drive(run=run)
        assert (run.status, run.error_detail) == ("completed", "")
    rows = ToolExecution.objects.filter(run=run, tool__in=["render", "pick_colour"])
    assert {(row.status, row.attempts) for row in rows} == {("succeeded", 1)}
    assert len(farm.lines("jobs")) == times
    assert all(row.result == f"picture {row.pk}" for row in rows if row.tool == "render")
    assert all(row.result["name"] == row.call_key for row in rows if row.tool == "pick_colour")
