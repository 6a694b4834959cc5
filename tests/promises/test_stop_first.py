"""A stop and the end of a run: the first of the two that is committed wins, and is the only end."""

import threading
import time

import pytest
from django.db import connections

from agentruntime.exceptions import IllegalTransition
from agentruntime.graph import END, START, Message, Pending, State, StateGraph, interrupt, tool
from agentruntime.lifecycle import start_run, stop_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Checkpoint, Event, Run
from tests.agents import agent, call, registered

ENDS = ("run.completed", "run.failed", "run.stopped", "run.timed_out", "run.interrupted")


def chain(node):
    graph = StateGraph(State)
    graph.add_node("last", node)
    return graph.add_edge(START, "last").add_edge("last", END)


def completes(state):
    return {"messages": [Message.assistant("I was done")]}


def fails(state):
    raise ValueError("no")


def asks(state):
    interrupt("sure?")


@pytest.mark.parametrize("last", [completes, fails, asks])
def test_an_accepted_stop_ends_the_run_whatever_its_step_comes_to(last, look):
    def node(state):
        stop_run(run_id=Run.objects.get().pk)
        return last(state)

    with registered(chain(node)) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
    assert look.fresh(run).status == "stopped"
    assert [one for one in look.events(run) if one in ENDS] == ["run.stopped"]
    assert look.open(run) == []
    if last is completes:  # what was finished is kept
        assert ("assistant", "I was done") in look.messages(run)
        assert Checkpoint.objects.filter(run=run, node="last").count() == 1


def test_a_run_that_would_wait_for_a_job_ends_at_once(look):
    @tool
    def job() -> Pending:
        """Begin a job."""
        stop_run(run_id=Run.objects.get().pk)
        return Pending("handle", deadline=3600)

    with agent([job], [call("job")]) as name:
        run = start_run(graph=name, input="hello")
        for _ in range(2):  # it is given back, due at once
            execute(run.pk)
    assert look.fresh(run).status == "stopped"


def test_a_stop_that_comes_after_the_end_is_refused(drive, look):
    with registered(chain(completes)) as name:
        run = drive(name)
    with pytest.raises(IllegalTransition):
        stop_run(run_id=run.pk)
    assert look.fresh(run).status == "completed"


def test_who_is_first_wins_and_is_told_so(look):
    """A stop at any moment of a short run, from the queue to its end."""
    accepted = 0
    with registered(chain(completes)) as name:
        for n in range(20):
            run = start_run(graph=name, input="hello")
            worker = threading.Thread(target=in_a_thread, args=(run,))
            worker.start()
            time.sleep(n * 0.001)  # from before the claim to after the end
            try:
                stop_run(run_id=run.pk)
                wanted = "stopped"
                accepted += 1
            except IllegalTransition:
                wanted = "completed"
            worker.join(10)
            execute(run.pk)  # a worker that had not begun
            assert look.fresh(run).status == wanted, n
            ends = Event.objects.filter(run=run, type__in=ENDS)
            assert [one.type for one in ends] == [f"run.{wanted}"], n
    assert accepted


def in_a_thread(run):
    execute(run.pk)
    connections.close_all()
