"""Graphs as nodes: their steps are steps of the thread, their own fields are their own."""

import operator
from typing import Annotated

import pytest

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph import (
    END,
    START,
    Command,
    Message,
    Send,
    State,
    StateGraph,
    create_agent,
    interrupt,
    register,
    tool,
)
from agentruntime.lifecycle import fork_thread, resume_run
from agentruntime.models import Checkpoint
from tests.agents import asks_for, call, registered
from tests.lifecycle.people import decided


class Report(State):
    topic: str = ""
    found: Annotated[list[str], operator.add] = []


class Research(State):
    topic: str = ""
    found: Annotated[list[str], operator.add] = []
    plan: str = ""
    rounds: Annotated[int, operator.add] = 0


def research(find=None):
    """plan, then find; `plan` and `rounds` are its own."""
    graph = StateGraph(Research)
    graph.add_node("plan", lambda state: {"plan": f"look for {state.topic}", "rounds": 1})
    graph.add_node("find", find or (lambda state: {"found": [f"{state.plan} {state.rounds}"]}))
    return graph.add_edge(START, "plan").add_edge("plan", "find").add_edge("find", END)


def around(inner, *, first=None, last=None):
    graph = StateGraph(Report)
    graph.add_node("begin", first or (lambda state: {"topic": "tea"}))
    graph.add_node("research", inner)
    graph.add_node("write", last or (lambda state: Message.assistant(", ".join(state.found))))
    graph.add_edge(START, "begin").add_edge("begin", "research")
    return graph.add_edge("research", "write").add_edge("write", END)


def steps_of(run):
    rows = Checkpoint.objects.filter(thread=run.thread_id).order_by("version")
    return [row.next_node for row in rows]


def head(run):
    return Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()


def test_each_step_of_a_subgraph_is_a_step_of_the_thread(drive, look):
    with registered(around(research())) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert steps_of(run) == ["begin", "research", "research/plan", "research/find", "write", END]
    assert look.messages(run)[-1] == ("assistant", "look for tea 1")


def test_fields_that_only_the_subgraph_declares_are_gone_when_it_is_left(drive):
    twice = around(research())
    twice.edges.pop("research")
    twice.add_conditional_edges(
        "research", lambda state: "write" if len(state.found) > 1 else "begin", ["write", "begin"]
    )
    with registered(twice) as name:
        run = drive(name)
        assert (run.status, run.error_detail) == ("completed", "")
        assert head(run).state["found"] == ["look for tea 1", "look for tea 1"]
        assert (head(run).state["plan"], head(run).state["rounds"]) == ("", 0)
        run = drive(name, thread_id=run.thread_id)
        assert head(run).state["found"][2:] == ["look for tea 1"]


def test_a_second_question_of_a_subgraph_does_not_get_the_answer_to_the_first(drive, look):
    inner = StateGraph(Research)
    inner.add_node("ask1", lambda state: {"found": [interrupt("same?")]})
    inner.add_node("ask2", lambda state: {"found": [interrupt("same?")]})
    inner.add_edge(START, "ask1").add_edge("ask1", "ask2").add_edge("ask2", END)
    with registered(around(inner)) as name:
        run = drive(name)
        first = look.open(run)[0]
        resume_run(interrupt_id=first.pk, value="x")
        run = drive(run=run)
        second = look.open(run)[0]
        assert (run.status, second.status) == ("interrupted", "open")
        assert second.pk != first.pk
        resume_run(interrupt_id=second.pk, value="y")
        run = drive(run=run)
    assert head(run).state["found"] == ["x", "y"]


def test_a_fork_inside_a_subgraph_asks_again_from_the_state_it_had_then(drive, look):
    graph = around(research(lambda state: {"found": [f"{state.plan}: {interrupt('sure?')}"]}))
    with registered(graph) as name:
        run = drive(name)
        resume_run(interrupt_id=look.open(run)[0].pk, value="yes")
        run = drive(run=run)
        inside = Checkpoint.objects.get(thread=run.thread_id, next_node="research/find")
        twin = drive(run=fork_thread(thread_id=run.thread_id, version=inside.version))
        assert (twin.status, len(look.open(twin))) == ("interrupted", 1)
        resume_run(interrupt_id=look.open(twin)[0].pk, value="no")
        twin = drive(run=twin)
    assert head(run).state["found"] == ["look for tea: yes"]
    assert head(twin).state["found"] == ["look for tea: no"]


def test_a_subgraph_is_mapped_over_items_and_its_own_fields_do_not_conflict(drive):
    graph = StateGraph(Report)
    graph.add_node("split", lambda state: None)
    graph.add_node("research", research())
    graph.add_node("write", lambda state: None)
    graph.add_edge(START, "split").add_edge("research", "write").add_edge("write", END)
    topics = ["tea", "milk", "mugs"]
    graph.add_conditional_edges(
        "split",
        lambda state: [Send("research", {"topic": one, "rounds": 6}) for one in topics],
    )
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["found"] == [f"look for {one} 7" for one in topics]
    assert (head(run).state["plan"], head(run).state["topic"]) == ("", "")


def test_branches_within_a_subgraph_meet_at_its_end(drive):
    inner = StateGraph(Research)
    for one in "ab":
        inner.add_node(one, lambda state, one=one: {"found": [one], "rounds": 1})
        inner.add_edge(START, one).add_edge(one, END)
    graph = around(inner)
    graph.edges.pop("research")
    graph.add_conditional_edges(
        "research", lambda state: "write" if state.rounds == 2 else END, ["write", END]
    )
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert steps_of(run)[-2:] == ["write", END]
    assert (head(run).state["found"], head(run).state["rounds"]) == (["a", "b"], 0)


def test_subgraphs_within_subgraphs_and_commands_that_look_outwards(drive):
    deep = StateGraph()
    deep.add_node("think", lambda state: Command(update={"messages": Message.assistant("deep")}))
    deep.add_node("leap", lambda state: Command(goto="write"))
    deep.add_edge(START, "think").add_edge("think", "leap")
    inner = research()
    inner.edges["plan"] = []
    del inner.edges["plan"]
    inner.add_node("deep", deep)
    inner.add_edge("plan", "deep").add_edge("deep", "find")
    with registered(around(inner)) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert steps_of(run)[2:] == [
        "research/plan",
        "research/deep",
        "research/deep/think",
        "research/deep/leap",
        "write",
        END,
    ]
    assert head(run).state["plan"] == ""


def test_an_agent_with_a_gated_tool_is_a_node(drive, look):
    paid = []

    @tool(approval=True)
    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    agent = create_agent(model=asks_for([call("pay", to="ann")]), tools=[pay])
    with registered(around(agent, last=lambda state: None)) as name:
        run = drive(name)
        assert (run.status, paid) == ("interrupted", [])
        assert look.calls(run)[0].node == "research/tools"
        decided(to="ann")
        run = drive(run=run)
    assert (run.status, paid) == ("completed", ["ann"])
    assert [role for role, _ in look.messages(run)] == ["user", "assistant", "tool", "assistant"]


def test_shapes_that_cannot_be_are_refused():
    class Other(State):
        topic: int = 0

    other = StateGraph(Other).add_node("n", lambda state: None)
    other.add_edge(START, "n").add_edge("n", END)
    with pytest.raises(InvalidGraph, match="'topic' is another one in 'research'"):
        register("never", around(other))
    loop = research()
    loop.add_node("again", loop)
    with pytest.raises(InvalidGraph, match="contains itself"):
        register("never", loop)
    lost = StateGraph(Report).add_node("research", research()).add_edge(START, "research")
    with pytest.raises(InvalidGraph, match="no edge leaves 'research'"):
        register("never", lost)
    stuck = StateGraph(Report).add_node("n", lambda state: None)
    stuck.add_edge(START, "n").add_edge("n", "n")
    with pytest.raises(InvalidGraph, match="'write' cannot be reached"):
        register("never", around(stuck))
    with pytest.raises(InvalidGraph, match="no name"):
        StateGraph().add_node("a/b", lambda state: None)
