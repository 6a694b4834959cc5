"""Questions that are answered, or expire, while their run is at work; questions about memos."""

from datetime import timedelta

import pytest

from agentruntime.exceptions import Interrupted
from agentruntime.graph import (
    END,
    START,
    ApprovalRule,
    Message,
    State,
    StateGraph,
    interrupt,
    once,
    tool,
)
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.lifecycle.recover import sweep
from agentruntime.models import DatabaseTime, Interrupt, Run, ToolExecution
from tests.agents import agent, call, registered


def test_an_approval_that_expires_while_a_sibling_works_is_not_asked_again(look):
    """The worker goes on with the answered sibling; meanwhile the other question's time is over."""
    gate = ApprovalRule(title="Pay", expires_in=timedelta(hours=1))
    ran = []

    @tool(approval=gate)
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    @tool
    def ask() -> str:
        """Ask."""
        answer = interrupt("sure?")
        Interrupt.objects.filter(kind="approval").update(expires_at=DatabaseTime(-1))
        sweep()  # another process
        return answer

    with agent([pay, ask], [call("pay", "a"), call("ask", "b")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        question = Interrupt.objects.get(run=run, kind="question")
        resume_run(interrupt_id=question.pk, value="yes")
        execute(run.pk)
        for _ in range(3):
            execute(run.pk)

    assert look.fresh(run).status == "completed"
    assert ran == []
    assert Interrupt.objects.filter(run=run, kind="approval").count() == 1
    assert "expired" in look.messages(run)[-1][1]


def test_an_approval_that_expires_right_before_the_pause_is_not_asked_again(look, monkeypatch):
    from agentruntime.lifecycle import loop

    pause_run = loop.pause_run

    def too_late(*given):
        Interrupt.objects.filter(kind="approval").update(expires_at=DatabaseTime(-1))
        sweep()  # another process, after the last look of this one
        return pause_run(*given)

    @tool(approval=ApprovalRule(title="Pay", expires_in=timedelta(hours=1)))
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?")

    with agent([pay, ask], [call("pay", "a"), call("ask", "b")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        question = Interrupt.objects.get(run=run, kind="question")
        resume_run(interrupt_id=question.pk, value="yes")
        monkeypatch.setattr(loop, "pause_run", too_late)
        execute(run.pk)
        assert look.fresh(run).status == "queued"
        execute(run.pk)

    assert look.fresh(run).status == "completed"
    assert Interrupt.objects.filter(run=run, kind="approval").count() == 1


def test_an_answer_that_comes_while_a_sibling_works_is_used_at_once(look):
    @tool
    def first() -> str:
        """First."""
        return interrupt("first?")

    @tool
    def second() -> str:
        """Second."""
        answer = interrupt("second?")
        open_one = Interrupt.objects.get(status="open")
        resume_run(interrupt_id=open_one.pk, value="late yes")
        return answer

    with agent([first, second], [call("first", "a"), call("second", "b")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        asked = Interrupt.objects.get(run=run, payload="second?")
        resume_run(interrupt_id=asked.pk, value="yes")
        execute(run.pk)
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert look.messages(run)[-1][1] == "late yes | yes"


def test_a_question_that_is_not_asked_again_is_withdrawn_with_the_step(look):
    """The code changed, or chose another way: the old question does not stay in people's lists."""
    ask_it = [True]

    def node(state):
        if ask_it[0]:
            interrupt("sure?")
        return {"messages": [Message.assistant("done without")]}

    def last(state):
        assert not Interrupt.objects.filter(status="open").exists()

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_node("last", last)
    graph.add_edge(START, "node")
    graph.add_edge("node", "last")
    graph.add_edge("last", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        ask_it[0] = False
        Run.objects.filter(pk=run.pk).update(status="queued")
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert Interrupt.objects.get(run=run).status == "cancelled"


def test_a_memo_of_unknown_outcome_in_a_tool_is_asked_once_and_its_tool_waits(
    look, die_at, monkeypatch
):
    from agentruntime import crash
    from agentruntime.lifecycle import tool_calls

    read_outcome, ran = tool_calls.read_outcome, []

    def dying(turn, acting, work):
        if isinstance(work.error, crash.SimulatedCrash):
            raise work.error
        return read_outcome(turn, acting, work)

    monkeypatch.setattr(tool_calls, "read_outcome", dying)

    def charge():
        ran.append("charge")
        crash.crash_point("P9")
        return "charged"

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("body")
        return once("charge", charge)

    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?")

    with agent([pay, ask], [call("pay", "a"), call("ask", "b")]) as name:
        run = start_run(graph=name, input="hello")
        die_at("P9", lambda: execute(run.pk))
        execute(run.pk)
        about, question = (
            Interrupt.objects.get(run=run, status="open", kind=kind)
            for kind in ("outcome", "question")
        )
        bodies = ran.count("body")
        resume_run(interrupt_id=question.pk, value="yes")
        execute(run.pk)
        assert look.fresh(run).status == "interrupted"
        assert Interrupt.objects.get(run=run, status="open").pk == about.pk
        assert ran.count("body") == bodies  # it waits for its own answer
        resume_run(interrupt_id=about.pk, value={"outcome": "succeeded", "result": "it was"})
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert ran.count("charge") == 1
    assert look.messages(run)[-1][1] == "it was | yes"


def test_a_loop_of_three_questions_in_a_node_asks_three_times_and_notes_once(look):
    noted = []

    def node(state):
        once("note", noted.append, 1)
        for turn in range(5):
            if interrupt({"draft": turn}) == "approve":
                return {"messages": [Message.assistant(f"approved after {turn + 1}")]}
        return None

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        for answer in ("no", "no", "approve"):
            execute(run.pk)
            open_ones = Interrupt.objects.filter(run=run, status="open")
            assert len(open_ones) == 1
            resume_run(interrupt_id=open_ones[0].pk, value=answer)
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert len(noted) == 1
    assert Interrupt.objects.filter(run=run, status="answered").count() == 3


def test_a_broad_except_does_not_swallow_the_pause(look):
    @tool
    def careless() -> str:
        """Careless."""
        try:
            return interrupt("sure?")
        except (Exception, Interrupted):  # even where somebody goes out of his way
            return "went past the gate"

    with agent([careless], [call("careless")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        assert look.fresh(run).status == "interrupted"
        assert all(role != "tool" for role, _ in look.messages(run))


def test_a_retry_is_not_held_up_by_a_siblings_question(look):
    attempts = []

    @tool(retries=2, retry_delay=0.01)
    def flaky(ctx) -> str:
        """Flaky."""
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise OSError("not yet")
        return "at last"

    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?")

    with agent([flaky, ask], [call("flaky", "a"), call("ask", "b")]) as name:
        run = start_run(graph=name, input="hello")
        for _ in range(4):
            execute(run.pk)
            Run.objects.filter(pk=run.pk, status="queued").update(wake_at=None)
            from agentruntime.models import ToolExecution

            ToolExecution.objects.filter(run=run, status="pending").update(
                retry_at=DatabaseTime(-1)
            )
        assert attempts == [1, 2, 3]
        assert look.fresh(run).status == "interrupted"
        assert Interrupt.objects.filter(run=run).count() == 1
        asked = Interrupt.objects.get(run=run)
        resume_run(interrupt_id=asked.pk, value="yes")
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert look.messages(run)[-1][1] == "at last | yes"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_asks_is_not_in_doubt_and_begins_anew_with_the_answer(look, is_async):
    def ask():
        return interrupt({"ok": "?"})

    async def ask_async():
        return interrupt({"ok": "?"})

    async def node_async(state):
        return {"messages": [Message.assistant(await once("step", ask_async))]}

    def node(state):
        return {"messages": [Message.assistant(once("step", ask))]}

    graph = StateGraph(State)
    graph.add_node("node", node_async if is_async else node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        question = Interrupt.objects.get(run=run)
        assert (question.kind, question.payload) == ("question", {"ok": "?"})
        assert not ToolExecution.objects.exists()
        resume_run(interrupt_id=question.pk, value="yes")
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert look.messages(run)[-1][1] == "yes"
    assert ToolExecution.objects.get().status == "succeeded"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_step_that_exits_has_failed_and_is_not_in_doubt(look, kind):
    ran = []

    def leave():
        ran.append(1)
        raise kind(1)

    @tool
    def go() -> str:
        """Go."""
        return once("leave", leave)

    with agent([go], [call("go", "a")], [call("go", "b")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    memos = ToolExecution.objects.filter(kind="once")
    assert [one.status for one in memos] == ["failed"] * len(ran)
    assert not Interrupt.objects.filter(run=run).exists()


def test_a_step_that_is_to_be_done_again_and_asks_is_asked_about_once(look, die_at, monkeypatch):
    from agentruntime import crash
    from agentruntime.lifecycle import tool_calls

    read_outcome, tries = tool_calls.read_outcome, []

    def dying(turn, acting, work):
        if isinstance(work.error, crash.SimulatedCrash):
            raise work.error
        return read_outcome(turn, acting, work)

    monkeypatch.setattr(tool_calls, "read_outcome", dying)

    def ask():
        tries.append(1)
        crash.crash_point("P9")
        return interrupt({"ok": "?"})

    @tool
    def go() -> str:
        """Go."""
        return once("step", ask)

    with agent([go], [call("go", "a")]) as name:
        run = start_run(graph=name, input="hello")
        die_at("P9", lambda: execute(run.pk))
        execute(run.pk)
        for kind, value in (("outcome", {"outcome": "retry"}), ("question", "yes")):
            question = Interrupt.objects.get(run=run, status="open")
            assert question.kind == kind
            resume_run(interrupt_id=question.pk, value=value)
            execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert look.messages(run)[-1][1] == "yes"
    assert len(tries) == 3
    assert Interrupt.objects.filter(run=run, status="answered").count() == 2
