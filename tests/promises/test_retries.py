"""Retries are counted in the database, and never of a call that may have happened."""

import pytest

from agentruntime.graph import NOT_DONE, tool
from agentruntime.lifecycle import resume_run, retry_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import DatabaseTime, Interrupt, Run, ToolExecution
from tests.agents import agent, call


@pytest.fixture
def keep_on(look):
    """Work on a run over its waits, as the sweep does when their moments have come."""

    def go(run):
        for _ in range(8):
            execute(run.pk)
            fresh = look.fresh(run)
            if fresh.status != "queued":
                return fresh
            Run.objects.filter(pk=run.pk).update(wake_at=None)
            ToolExecution.objects.filter(run=run, status="pending").update(
                retry_at=DatabaseTime(-1)
            )
        return look.fresh(run)

    return go


@pytest.mark.parametrize("error", [ConnectionResetError, TimeoutError, BrokenPipeError])
def test_a_once_call_whose_line_broke_is_unknown_and_not_retried(keep_on, error):
    """The service applied the change and dropped the connection."""
    applied = []

    @tool(effect="once", retries=3, retry_delay=0)
    def pay() -> str:
        """Pay."""
        applied.append(1)
        raise error("no answer")

    with agent([pay], [call("pay")]) as name:
        run = keep_on(start_run(graph=name, input="hello"))
        assert (run.status, applied) == ("interrupted", [1])
        asked = Interrupt.objects.get(run=run)
        assert error.__name__ in asked.payload["error"]
        resume_run(interrupt_id=asked.pk, value={"outcome": "succeeded", "result": "paid"})
        assert keep_on(run).status == "completed"
    assert applied == [1]


def test_a_repeatable_call_is_retried_under_one_key(keep_on):
    keys = []

    @tool(retries=2, retry_delay=0, retry_on=ConnectionError)
    def pay(idempotency_key: str) -> str:
        """Pay."""
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionResetError("no answer")
        return "paid"

    with agent([pay], [call("pay")]) as name:
        assert keep_on(start_run(graph=name, input="hello")).status == "completed"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_an_error_that_is_not_of_the_policy_is_not_retried(keep_on):
    ran = []

    @tool(retries=2, retry_delay=0, retry_on=OSError)
    def pay() -> str:
        """Pay."""
        ran.append(1)
        raise ValueError("wrong")

    with agent([pay], [call("pay")]) as name:
        keep_on(start_run(graph=name, input="hello"))
    assert ran == [1]


def test_what_the_provider_said_counts_for_the_attempt_it_was_asked_about(keep_on, die_at):
    """It says "not done" of the first attempt; the second one, overdue, is asked about anew."""
    ran, asked = [], []

    def ask(arguments, key):
        asked.append(1)
        return NOT_DONE if len(asked) == 1 else {"receipt": 1}

    @tool(effect="once", reconcile=ask)
    def pay() -> str:
        """Pay."""
        ran.append(1)
        raise TimeoutError("no answer")

    with agent([pay], [call("pay")]) as name:
        run = keep_on(start_run(graph=name, input="hello"))
    assert run.status == "completed"
    assert (len(ran), len(asked)) == (2, 2)
    assert ToolExecution.objects.get(run=run).result == {"receipt": 1}


def test_a_call_that_kills_its_worker_is_parked_and_may_be_tried_again(look, die_at):
    fatal = [True]

    @tool
    def die() -> str:
        """Die."""
        return "alive"

    with agent([die], [call("die")]) as name:
        run = start_run(graph=name, input="hello")
        for _ in range(3):
            die_at("P7", lambda: execute(run.pk))
        execute(run.pk)
        parked = look.fresh(run)
        assert (parked.status, parked.error_code) == ("failed", "CALL_PARKED_001")
        assert ToolExecution.objects.get(run=run).status == "unknown"
        fatal.clear()
        retry_run(run_id=run.pk)
        execute(run.pk)
    assert look.fresh(run).status == "completed"


def test_a_run_that_kills_its_worker_before_any_commit_is_parked(look, die_at, counts):
    with agent([], []) as name:
        run = start_run(graph=name, input="hello")
        for _ in range(5):
            die_at("P4", lambda: execute(run.pk))
        execute(run.pk)
    assert look.fresh(run).error_code == "RUN_PARKED_001"
    assert counts["run.parked"] == 1
