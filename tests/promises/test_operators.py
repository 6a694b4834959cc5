"""What an operator can alert on and read: each count of the list, lines that say whose
they are.
"""

import logging
import threading
from itertools import pairwise

import pytest

from agentruntime.graph import END, START, Message, State, StateGraph, tool
from agentruntime.lifecycle import start_run, stop_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.lifecycle.loop import execute
from agentruntime.lifecycle.recover import sweep
from agentruntime.models import Checkpoint, DatabaseTime, Run, Thread
from tests.agents import agent, call, registered
from tests.waiting import wait_until


def graph_of(*nodes):
    graph = StateGraph(State)
    names = [START, *(node.__name__ for node in nodes), END]
    for node in nodes:
        graph.add_node(node.__name__, node)
    for here, there in pairwise(names):
        graph.add_edge(here, there)
    return graph


def test_timeouts_and_errors_are_counted(drive, counts):
    release = threading.Event()

    @tool(timeout=0.1)
    def hang() -> str:
        """Hang."""
        release.wait(10)
        return "late"

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    def slow(state):
        release.wait(10)

    with agent([hang, fail], [call("hang", "a"), call("fail", "b")]) as name:
        drive(name)
    with registered(graph_of(slow)) as name:
        drive(name, config={"node_timeout": 0.1})
    release.set()
    assert counts["tool.timeouts"] == counts["node.timeouts"] == 1
    assert counts["tool.errors"] == 2


def test_replays_unknown_outcomes_and_recoveries_are_counted(look, counts, die_at):
    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool
    def note() -> str:
        """Note."""
        return "noted"

    with agent([pay, note], [call("note", "a")], [call("pay", "b")]) as name:
        run = start_run(graph=name, input="hello")
        die_at("P11", lambda: execute(run.pk))
        die_at("P7", lambda: execute(run.pk))
        execute(run.pk)
    assert counts["tool.replayed"] == 1
    assert counts["tool.unknown"] == 1
    assert counts["run.recovered"] == 2


@pytest.mark.unsound  # the head is moved behind the runtime's back
def test_a_stale_write_is_counted_and_nothing_of_it_is_kept(counts):
    def write(state):
        Thread.objects.update(head_version=7)

    with registered(graph_of(write)) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
    assert counts["stale_state"] == 1
    assert not Checkpoint.objects.filter(run=run, node="write").exists()


def test_a_lost_lease_is_counted(counts):
    def lose(state):
        Run.objects.update(lease_expires_at=DatabaseTime(-1))
        assert claim_run(Run.objects.get().pk) is not None
        wait_until(lambda: counts.get("lease.lost"))

    with registered(graph_of(lose)) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        assert counts["lease.lost"] == 1
        stop_run(run_id=run.pk)
        Run.objects.update(lease_expires_at=DatabaseTime(-1))
        execute(run.pk)


def test_the_sweep_says_how_late_it_is(counts):
    with agent([], []) as name:
        run = start_run(graph=name, input="hello")
        Run.objects.filter(pk=run.pk).update(queued_at=DatabaseTime(-30))
        assert sweep() == [run.pk]
        assert 29 < counts["sweep.lag"] < 60
        execute(run.pk)


def test_a_line_says_whose_it_is(drive, caplog):
    from agentruntime.bound import bound_facts

    seen = {}

    @tool
    def speak() -> str:
        """Speak."""
        seen.update(bound_facts())
        return "said"

    def broken(state):
        raise ValueError("no")

    with agent([speak], [call("speak")]) as name:
        run = drive(name)
    assert seen == {
        "run": str(run.pk), "thread": str(run.thread_id), "fencing_token": 1, "node": "tools",
    }  # fmt: skip
    with registered(graph_of(broken)) as name, caplog.at_level(logging.WARNING, "agentruntime"):
        failed = drive(name)
    line = next(text for text in caplog.messages if text.startswith("run failed"))
    assert str(failed.pk) in line
    assert "fencing_token" in line


def test_what_a_run_without_durable_steps_has_finished_is_kept_by_a_stop(look):
    begun, release = threading.Event(), threading.Event()

    def first(state):
        return {"messages": [Message.assistant("first is done")]}

    def second(state):
        begun.set()
        release.wait(10)

    with registered(graph_of(first, second)) as name:
        config = {"durable_checkpoint_every_step": False}
        run = start_run(graph=name, input="hello", config=config)
        worker = threading.Thread(target=work_and_close, args=(run,))
        worker.start()
        assert begun.wait(10)
        assert not Checkpoint.objects.filter(run=run, node="first").exists()
        stop_run(run_id=run.pk)
        worker.join(10)
        release.set()
    assert look.fresh(run).status == "stopped"
    assert ("assistant", "first is done") in look.messages(run)


def work_and_close(run):
    from django.db import connections

    execute(run.pk)
    connections.close_all()
