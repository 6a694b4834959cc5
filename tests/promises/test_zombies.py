"""A worker that was taken for dead comes back: what it did is true, and it does nothing more."""

import threading
import time

import pytest
from django.db import connections

from agentruntime.exceptions import LeaseLost
from agentruntime.graph import END, START, Message, State, StateGraph, interrupt, once, tool
from agentruntime.lifecycle import recover, start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.loop import _hold, execute
from agentruntime.models import (
    BranchStep,
    Checkpoint,
    DatabaseTime,
    Interrupt,
    Run,
    ToolExecution,
)
from tests.agents import agent, call, registered
from tests.waiting import wait_until


@pytest.fixture
def asleep(monkeypatch):
    """A worker whose keeper hears nothing, as one that is stopped: gives a thread that executes."""
    from agentruntime.lifecycle import lease

    monkeypatch.setattr(lease.Keeper, "look", lambda *_: None)
    monkeypatch.setattr(lease.Keeper, "prolong", lambda *_: None)
    workers = []

    def start(run):
        def work():
            execute(run.pk)
            connections.close_all()

        workers.append(threading.Thread(target=work))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.join(15)


def take_over(run):
    Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
    execute(run.pk)


def test_a_late_result_settles_the_question_and_the_run_goes_on(asleep, look):
    begun, release, ran = threading.Event(), threading.Event(), []

    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        ran.append(1)
        begun.set()
        release.wait(20)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        worker = asleep(run)
        assert begun.wait(10)
        take_over(run)
        assert look.fresh(run).status == "interrupted"
        asked = Interrupt.objects.get(run=run)
        release.set()
        worker.join(10)
        asked.refresh_from_db()
        assert (asked.status, look.fresh(run).status) == ("cancelled", "queued")
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert ran == [1]
    assert [(row.status, row.result) for row in look.calls(run)] == [("succeeded", "paid")]


def test_a_late_failure_does_not_settle_an_attempt_that_is_under_way(asleep, look):
    first, second, release = threading.Event(), threading.Event(), threading.Event()

    @tool
    def pay(ctx) -> str:
        """Pay."""
        if ctx.attempt == 1:
            first.set()
            second.wait(20)
            raise ConnectionError("my line was cut while I slept")
        second.set()
        release.wait(20)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        zombie = asleep(run)
        assert first.wait(10)
        Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
        heir = asleep(run)
        zombie.join(10)
        assert ToolExecution.objects.get(run=run).status == "running"
        release.set()
        heir.join(10)
    assert look.fresh(run).status == "completed"
    row = ToolExecution.objects.get(run=run)
    assert (row.status, row.result, row.attempts) == ("succeeded", "paid", 2)


def test_a_fenced_out_node_commits_nothing_and_does_not_go_on(asleep, look):
    """Two workers on one run with nodes reserve, mail, ship: the loser stops at its first write."""
    begun, release, done = threading.Event(), threading.Event(), []

    def reserve(state):
        is_first = not begun.is_set()
        begun.set()
        if is_first:
            release.wait(20)
        return {"messages": [Message.assistant("reserved")]}

    graph = StateGraph(State)
    graph.add_node("reserve", reserve)
    graph.add_node("mail", lambda state: done.append("mail"))
    graph.add_node("ship", lambda state: done.append("ship"))
    graph.add_edge(START, "reserve")
    graph.add_edge("reserve", "mail")
    graph.add_edge("mail", "ship")
    graph.add_edge("ship", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        zombie = asleep(run)
        assert begun.wait(10)
        take_over(run)
        release.set()
        zombie.join(10)
    assert look.fresh(run).status == "completed"
    assert done == ["mail", "ship"]
    assert Checkpoint.objects.filter(run=run, node="reserve").count() == 1


def test_a_fenced_out_branch_records_nothing(asleep, look):
    begun, release, entered = threading.Event(), threading.Event(), []

    def left(state):
        entered.append(1)
        if len(entered) == 1:
            begun.set()
            release.wait(20)
            return {"messages": [Message.assistant("from the dead")]}
        return {"messages": [Message.assistant("from the living")]}

    graph = StateGraph(State)
    graph.add_node("left", left)
    graph.add_node("right", lambda state: None)
    graph.add_node("join", lambda state: None)
    for name in ("left", "right"):
        graph.add_edge(START, name).add_edge(name, "join")
    graph.add_edge("join", END)
    with registered(graph) as name:
        run = start_run(graph=name, input="hello")
        worker = asleep(run)
        assert begun.wait(10)
        wait_until(lambda: BranchStep.objects.filter(node="right").exists())
        Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
        claim = claim_run(run.pk)
        release.set()
        worker.join(10)
        assert not BranchStep.objects.filter(node="left").exists()
        _hold(claim)
    assert look.fresh(run).status == "completed"
    assert ("assistant", "from the dead") not in look.messages(run)
    steps = BranchStep.objects.filter(number__gt=0).values_list("node", "fencing_token")
    assert sorted(steps) == [("left", 2), ("right", 1)]


def test_a_zombie_cannot_put_a_call_back_that_another_worker_has(asleep, look):
    begun, asked, release = threading.Event(), threading.Event(), threading.Event()

    @tool
    def ask(ctx) -> str:
        """Ask."""
        if ctx.attempt == 1:
            begun.set()
            asked.wait(20)
            return interrupt("late question")
        asked.set()
        release.wait(20)
        return "fine"

    with agent([ask], [call("ask")]) as name:
        run = start_run(graph=name, input="hello")
        zombie = asleep(run)
        assert begun.wait(10)
        Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
        heir = asleep(run)
        zombie.join(10)
        assert ToolExecution.objects.get(run=run).status == "running"
        release.set()
        heir.join(10)
    assert look.fresh(run).status == "completed"
    assert not Interrupt.objects.filter(run=run).exists()


def test_a_memo_of_a_fenced_out_worker_is_not_begun(asleep, look):
    begun, release, told = threading.Event(), threading.Event(), []

    @tool
    def tell(ctx) -> str:
        """Tell."""
        if ctx.attempt == 1:
            begun.set()
            release.wait(20)
        once("tell", told.append, ctx.attempt)
        return "told"

    with agent([tell], [call("tell")]) as name:
        run = start_run(graph=name, input="hello")
        zombie = asleep(run)
        assert begun.wait(10)
        take_over(run)
        release.set()
        zombie.join(10)
    assert look.fresh(run).status == "completed"
    assert told == [2]
    assert [row.status for row in look.calls(run)] == ["succeeded", "succeeded"]


def test_a_worker_that_slept_past_its_lease_asks_before_an_effect(look):
    """SIGSTOP between the commit of the intent and the call: the clock goes on meanwhile."""
    with agent([], []) as name:
        run = start_run(graph=name, input="hello")
        lease = claim_run(run.pk).lease
        control = Control(lease)
        control.confirmed_at = time.monotonic() - 60
        control.confirm()  # nobody took the run
        control.confirmed_at = time.monotonic() - 60
        Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
        assert claim_run(run.pk) is not None
        with pytest.raises(LeaseLost):
            control.confirm()
        execute_rest(run)


def execute_rest(run):
    Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
    execute(run.pk)


def test_a_thread_that_is_deleted_under_its_worker_leaves_nothing(asleep, told):
    from agentruntime.lifecycle import delete_thread

    begun, release = threading.Event(), threading.Event()

    @tool
    def pay() -> str:
        """Pay."""
        begun.set()
        release.wait(20)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        worker = asleep(run)
        assert begun.wait(10)
        delete_thread(thread_id=run.thread_id)
        release.set()
        worker.join(10)
    assert ToolExecution.objects.count() == Run.objects.count() == Checkpoint.objects.count() == 0
    assert [event for level, event in told if level == "error"] == []


def test_a_sweep_takes_up_what_a_dead_worker_held(look):
    with agent([], []) as name:
        run = start_run(graph=name, input="hello")
        claim_run(run.pk)
        assert claim_run(run.pk) is None  # one lease at a time
        assert recover.sweep() == []
        Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
        assert recover.sweep() == [run.pk]
        execute(run.pk)
    wait_until(lambda: look.fresh(run).status == "completed")


def test_after_an_outage_those_who_hold_runs_come_first(monkeypatch):
    """Nobody could prolong a lease while the database was away: that is no worker's death."""
    clock = [100.0]
    monkeypatch.setattr(recover, "now", lambda: clock[0])
    with agent([], []) as name:
        held = start_run(graph=name, input="hello")
        claim_run(held.pk)
        Run.objects.filter(pk=held.pk).update(lease_expires_at=DatabaseTime(-1))
        queued = start_run(graph=name, input="hello")
        outage, found = recover.Outage(), {}
        for moment in (100, 101, 112, 113, 115, 117, 119):  # away from 101 to 112
            clock[0] = float(moment)
            found[moment] = set(recover.sweep(outage))
    both, unheld = {held.pk, queued.pk}, {queued.pk}
    assert found == {
        100: both, 101: both, 112: unheld, 113: unheld, 115: unheld, 117: unheld, 119: both
    }  # fmt: skip
