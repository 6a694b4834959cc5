"""Agents that hand over and agents that ask each other, each process gone after its turn."""

import signal
import subprocess
import sys
import threading

import pytest

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph import (
    Message,
    agent_tool,
    create_agent,
    handoff,
    interrupt,
    register,
    team,
    tool,
)
from agentruntime.invariants import find_violations
from agentruntime.lifecycle import delete_thread, resume_run, retry_run, start_run, stop_run
from agentruntime.models import BranchStep, Checkpoint, Interrupt, Run, ToolExecution
from agentruntime.pages.timeline import read_timeline
from approvals.models import Approval
from tests.agents import agent, asks_for, call, calls_of, registered, results_of
from tests.lifecycle import desk
from tests.lifecycle.people import decided
from tests.processes import ROOT


@pytest.fixture
def journal(monkeypatch, tmp_path):
    monkeypatch.setenv(desk.JOURNAL, str(tmp_path / "journal"))
    desk.register_all()
    yield desk.noted
    for name in desk.GRAPHS:
        desk.unregister(name)


@pytest.fixture
def elsewhere(process_environment):
    """Works a run off in a process of its own; one that is to die, dies."""

    def go(run, dies_at=None):
        more = {desk.DIE_AT: str(dies_at)} if dies_at else {}
        command = [sys.executable, "-m", "tests.lifecycle.desk", str(run.pk)]
        ended = subprocess.run(
            command, cwd=ROOT, env=process_environment(**more), timeout=60, capture_output=True
        )
        wanted = -signal.SIGKILL if dies_at else 0
        assert ended.returncode == wanted, ended.stderr.decode()
        if dies_at:
            Run.objects.filter(pk=run.pk).update(lease_expires_at="2000-01-01T00:00:00Z")
        return Run.objects.get(pk=run.pk)

    return go


def began(graph, message="please"):
    return start_run(graph=graph, input=message)


def sound():
    return list(find_violations()) == []


@pytest.mark.slow
def test_a_killed_worker_takes_no_finished_branch_along(journal, elsewhere):
    run = elsewhere(began("desk-three"), dies_at=3)
    assert sorted(journal()) == ["a", "b", "c"]
    assert BranchStep.objects.filter(number=1).count() == 2
    run = elsewhere(run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert sorted(journal()) == ["a", "b", "c", "c"]
    assert Checkpoint.objects.order_by("-version").first().state["done"] == ["a", "b", "c"]
    assert sound()


@pytest.mark.slow
def test_a_handoff_goes_on_at_the_other_agent_and_every_process_may_end(journal, elsewhere, look):
    run = elsewhere(began("desk-handoff"))
    assert run.status == "interrupted"
    before = journal()
    assert before == ["support:0", "look_up:1042", "support:1", "billing:0"]
    run = elsewhere(run)
    assert (run.status, journal(), Approval.objects.count()) == ("interrupted", before, 1)
    decided(order="1042")
    run = elsewhere(run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert journal() == [*before, "refund:1042", "billing:1"]
    assert Approval.objects.count() == 1
    assert look.messages(run)[-1] == ("assistant", "billing says: refunded 1042")
    assert [row.tool for row in look.calls(run)] == ["look_up", "to_billing", "refund"]
    assert sound()


@pytest.mark.slow
def test_a_later_message_goes_to_whoever_spoke_last(journal, elsewhere):
    run = elsewhere(began("desk-handoff"))
    decided(order="1042")
    run = elsewhere(run)
    again = elsewhere(start_run(graph="desk-handoff", input="thanks", thread_id=run.thread_id))
    assert journal()[-1] == "billing:0"
    assert again.status == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [None, 3, 4])
def test_an_agent_that_is_asked_goes_on_from_its_own_step(journal, elsewhere, look, dies_at):
    """manager:0, clerk:0, look_up:7, clerk:1 | approval | refund:7, clerk:2, manager:1"""
    run = elsewhere(began("desk-asking"), dies_at)
    begun = journal()
    if dies_at:  # what had begun and was not recorded begins again, nothing before it
        run = elsewhere(run)
        assert journal()[dies_at] == begun[-1]
    before = journal()
    assert (run.status, len(look.open(run))) == ("interrupted", 1)
    assert len(before) == 4 + bool(dies_at)
    assert elsewhere(run).status == "interrupted"
    assert (journal(), Approval.objects.count()) == (before, 1)
    decided(order="7")
    run = elsewhere(run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert journal() == [*before, "refund:7", "clerk:2", "manager:1"]
    assert Approval.objects.count() == 1
    assert look.messages(run)[-2:] == [
        ("tool", "clerk says: refunded 7"),
        ("assistant", "manager says: clerk says: refunded 7"),
    ]
    assert {row.node for row in look.calls(run)} == {"tools", "tools/ask_clerk/tools"}
    assert sound()


@pytest.mark.slow
def test_an_approved_call_of_an_inner_agent_that_kills_its_worker_is_asked_about(
    journal, elsewhere, look
):
    run = elsewhere(began("desk-asking"))
    decided(order="7")
    run = elsewhere(run, dies_at=5)
    run = elsewhere(run)
    asked = look.open(run)[0]
    assert (run.status, asked.kind, journal().count("refund:7")) == ("interrupted", "outcome", 1)
    resume_run(interrupt_id=asked.pk, value={"outcome": "succeeded", "result": "refunded 7"})
    run = elsewhere(run)
    assert (run.status, journal().count("refund:7")) == ("completed", 1)


# --- in one process --------------------------------------------------------------------------


def asked(*agents, model=None):
    """A boss who asks these agents, all in one turn."""
    tools = [agent_tool(one, f"ask_{n}", "Ask.") for n, one in enumerate(agents)]
    turn = [call(f"ask_{n}", f"c{n}", message=f"question {n}") for n in range(len(agents))]
    return registered(create_agent(model=model or asks_for(turn), tools=tools))


def test_two_agents_that_are_asked_at_once_wait_each_for_its_own_answer(drive, look):
    entered = []

    def asking(name):
        @tool
        def check() -> str:
            entered.append(name)
            return f"{name} heard {interrupt('how much?')}"

        return create_agent(model=asks_for([call("check")]), tools=[check])

    with asked(asking("x"), asking("y")) as name:
        run = drive(name)
        questions = {one.tool_execution.node: one for one in look.open(run)}
        assert set(questions) == {"tools/ask_0/tools", "tools/ask_1/tools"}
        resume_run(interrupt_id=questions["tools/ask_1/tools"].pk, value="2")
        run = drive(run=run)
        assert (run.status, sorted(entered)) == ("interrupted", ["x", "y", "y"])
        assert [one.pk for one in look.open(run)] == [questions["tools/ask_0/tools"].pk]
        resume_run(interrupt_id=questions["tools/ask_0/tools"].pk, value="1")
        run = drive(run=run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert look.messages(run)[-1] == ("assistant", "x heard 1 | y heard 2")
    assert (sorted(entered), Interrupt.objects.count()) == (["x", "x", "y", "y"], 2)


def test_an_agent_asked_anew_begins_anew(drive, look):
    def model(messages, tools):
        done = len(calls_of(messages))
        if done < 2:
            return Message.assistant("", tool_calls=[call("ask_0", "c", message=f"n{done}")])
        return Message.assistant(" ".join(results_of(messages)))

    echo = create_agent(
        model=lambda messages, tools: Message.assistant(f"<{messages[-1].content}>")
    )
    with asked(echo, model=model) as name:
        run = drive(name)
    assert look.messages(run)[-1] == ("assistant", "<n0> <n1>")
    assert BranchStep.objects.filter(number=1).count() == 2


def test_an_inner_agents_failure_is_the_runs_and_a_retry_goes_on_at_its_step(drive, look):
    said, broken = [], [True]

    def model(messages, tools):
        said.append(len(messages))
        if not results_of(messages):
            return Message.assistant("", tool_calls=[call("look")])
        if broken:
            raise ConnectionError("the provider is away")
        return Message.assistant("fine")

    @tool
    def look_() -> str:
        return "seen"

    inner = create_agent(model=model, tools=[tool(name="look")(look_.fn)])
    with asked(inner) as name:
        run = drive(name)
        assert (run.status, run.error_code) == ("failed", "NODE_FAILED_001")
        assert "tools/ask_0/model" in run.error_detail
        broken.clear()
        retry_run(run_id=run.pk)
        run = drive(run=run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert said == [1, 3, 3]


def test_the_steps_of_an_inner_agent_count(drive):
    @tool
    def again() -> str:
        return "more"

    endless = create_agent(
        model=lambda messages, tools: Message.assistant("", tool_calls=[call("again")]),
        tools=[again],
    )
    with asked(endless) as name:
        run = drive(name, config={"recursion_limit": 9})
    assert (run.status, run.error_code) == ("failed", "RECURSION_LIMIT_001")
    assert BranchStep.objects.filter(number__gt=0).count() == 8


def test_stop_and_delete_reach_the_inner_agent(drive, look):
    @tool(approval=True)
    def pay(to: str) -> str:
        raise AssertionError

    for end in (stop_run, delete_thread):
        inner = create_agent(model=asks_for([call("pay", to="ann")]), tools=[pay])
        with asked(inner) as name:
            run = drive(name)
            pending = Approval.objects.get(status="pending")
            end(**({"run_id": run.pk} if end is stop_run else {"thread_id": run.thread_id}))
        pending.refresh_from_db()
        assert pending.status == "cancelled"
        left = ToolExecution.objects.filter(thread=run.thread_id)
        assert set(left.values_list("status", flat=True)) <= {"cancelled"}
    assert not BranchStep.objects.filter(thread=run.thread_id).exists()


def test_the_first_of_several_handoffs_counts_and_a_declined_one_hands_nothing_over(drive, look):
    def support(messages, tools):
        if not calls_of(messages):
            both = [call("to_a", "c1"), call("to_b", "c2")]
            return Message.assistant("", tool_calls=both)
        return Message.assistant("still me")

    def other(name):
        return create_agent(model=lambda messages, tools: Message.assistant(f"{name} here"))

    for options, last in (({}, "a here"), ({"approval": True}, "still me")):
        tools = [handoff("a", name="to_a", **options), handoff("b", name="to_b")]
        first = create_agent(model=support, tools=tools)
        with registered(team(support=first, a=other("a"), b=other("b"))) as name:
            run = drive(name)
            if options:
                decided("decline")
                run = drive(run=run)
        assert (run.status, look.messages(run)[-1]) == ("completed", ("assistant", last))
        results = [content for role, content in look.messages(run) if role == "tool"]
        assert "handed over by 'to_a'" in results[1]


def test_agents_that_cannot_work_are_refused():
    lost = create_agent(model=asks_for(), tools=[handoff("nowhere")])
    with pytest.raises(InvalidGraph, match="'nowhere', which is no node"):
        register("never", team(one=lost))
    with pytest.raises(InvalidGraph, match="at least one"):
        team()
    selfish = create_agent(model=asks_for(), tools=[look_tool := tool(name="t")(lambda: "")])
    assert look_tool.agent is None
    selfish.nodes["tools"].tools["me"] = agent_tool(selfish, "me", "Ask me.")
    with pytest.raises(InvalidGraph, match="contains itself"):
        register("never", selfish)


def test_a_structured_answer_is_the_result(drive, look):
    inner = create_agent(model=asks_for([call("answer", answer={"n": 3})]), output=dict)
    with asked(inner) as name:
        run = drive(name)
    assert (run.status, look.calls(run)[0].result) == ("completed", {"n": 3})


def test_an_agent_that_may_not_be_asked_is_not_asked(drive, look):
    inner = create_agent(model=lambda messages, tools: Message.assistant("yes"))
    ask = agent_tool(inner, "ask", "Ask.", approval=True)
    with agent([ask], [call("ask", message="hi")]) as name:
        run = drive(name)
        assert (run.status, BranchStep.objects.count()) == ("interrupted", 0)
        decided(message="hi")
        run = drive(run=run)
    assert look.messages(run)[-1] == ("assistant", "yes")


def test_what_an_inner_agent_asks_is_seen_where_the_outer_run_is_seen(drive, look, admin_client):
    @tool(approval=True)
    def pay(to: str) -> str:
        return "paid"

    inner = create_agent(model=asks_for([call("pay", to="ann")]), tools=[pay])
    with asked(inner) as name:
        run = drive(name)
        calls = [one for one in read_timeline(run.thread, run) if one.kind == "call"]
        assert [one.facts["tool"] for one in calls] == ["ask_0", "pay"]
        assert [one["status"] for one in calls[1].facts["questions"]] == ["open"]
        body = admin_client.get(f"/api/v1/runs/{run.pk}/").json()
        assert [one["payload"]["tool"] for one in body["open_interrupts"]] == ["pay"]
        decided(to="ann")
        run = drive(run=run)
    assert run.status == "completed"


def test_a_message_after_a_failed_run_ends_what_its_agents_had_asked_for(drive, look):
    def broken(messages, tools):
        raise ValueError("no")

    @tool(approval=True)
    def pay(to: str) -> str:
        raise AssertionError

    payer = create_agent(model=asks_for([call("pay", to="ann")]), tools=[pay])
    with asked(payer, create_agent(model=broken)) as name:
        run = drive(name)
        assert run.status == "failed"
        drive(name, thread_id=run.thread_id)
    old = [row.status for row in look.calls(run) if row.run_id == run.pk]
    assert set(old) == {"cancelled"}


def test_a_sibling_of_an_agent_that_fails_comes_to_its_end(drive, look):
    failed = threading.Event()

    def broken(messages, tools):
        failed.set()
        raise ValueError("no")

    @tool(effect="once")
    def pay() -> str:
        assert failed.wait(20)
        threading.Event().wait(0.3)
        return "paid"

    ask = agent_tool(create_agent(model=broken), "ask", "Ask.")
    with agent([ask, pay], [call("ask", "c1", message="hi"), call("pay", "c2")]) as name:
        run = drive(name)
    assert (run.status, run.error_code) == ("failed", "NODE_FAILED_001")
    assert [row.status for row in look.calls(run)] == ["pending", "succeeded"]
