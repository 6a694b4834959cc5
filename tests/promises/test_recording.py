"""A call that completed is recorded; where that fails or is spoiled, nothing is guessed."""

import pytest
from django.db import connection

from agentruntime.graph import tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Interrupt, ToolExecution
from tests.agents import agent, call
from tests.faults.triggers import refusing

SUCCEEDED = "NEW.status = 'succeeded'"


@pytest.mark.unsound  # the row stays open: that is what the error line is about
def test_a_call_that_cannot_be_recorded_is_told_and_the_run_goes_on(drive, told, counts):
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    with refusing("agentruntime_toolexecution", SUCCEEDED), agent([pay], [call("pay")]) as name:
        run = drive(name)

    assert (run.status, len(ran)) == ("completed", 1)
    assert counts["ledger.write_failures"] == 1
    errors = [event for level, event in told if level == "error"]
    assert len(errors) == 1
    assert "completed but could not be recorded" in errors[0]


def test_what_could_not_be_recorded_is_written_with_the_next_commit(drive, look, monkeypatch):
    from agentruntime.lifecycle import recording

    original, failures = recording._record, [RuntimeError("no room")]

    def once_broken(*given):
        if failures:
            raise failures.pop()
        return original(*given)

    monkeypatch.setattr(recording, "_record", once_broken)
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = drive(name)

    assert (run.status, len(ran)) == ("completed", 1)
    assert [(row.status, row.result) for row in look.calls(run)] == [("succeeded", "paid")]


@pytest.mark.unsound
def test_an_unrecorded_call_is_not_started_again_for_a_sibling(drive):
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    @tool(sequential=True)
    def note() -> str:
        """Note."""
        ran.append("note")
        return "noted"

    both = [call("pay", "call_1"), call("note", "call_2")]
    paid = f"{SUCCEEDED} AND NEW.tool = 'pay'"
    with refusing("agentruntime_toolexecution", paid), agent([pay, note], both) as name:
        run = drive(name)

    assert run.status == "completed"
    assert ran == ["pay", "note"]


SPOILED = {
    "sqlite": ("result = '{broken'", "state_update = '[1]'", "error = '[]'"),
    "postgresql": (
        "state_update = '[1]'",
        "error = '\"text\"'",
        "result = repeat('[', 5000)::text",
    ),
}


def spoil(run, how):
    with connection.cursor() as cursor:
        if "repeat" in how:  # storable, and too deep to read
            cursor.execute(
                "UPDATE agentruntime_toolexecution SET result = "
                "(repeat('[', 3000) || repeat(']', 3000))::jsonb WHERE run_id = %s",
                [run.pk],
            )
        else:
            on_sqlite = connection.vendor == "sqlite"
            if on_sqlite:  # as a disk would: past the constraint that it is JSON
                cursor.execute("PRAGMA ignore_check_constraints = ON")
            cursor.execute(
                f"UPDATE agentruntime_toolexecution SET {how} WHERE run_id = %s",
                [run.pk.hex if on_sqlite else run.pk],
            )
            if on_sqlite:
                cursor.execute("PRAGMA ignore_check_constraints = OFF")


@pytest.mark.parametrize("nth", [0, 1, 2])
@pytest.mark.parametrize("effect", ["repeatable", "once", "transactional"])
def test_an_outcome_that_cannot_be_read_back_is_no_result(effect, nth, die_at, look, told):
    keys = []

    @tool(effect=effect)
    def pay(idempotency_key: str) -> str:
        """Pay."""
        keys.append(idempotency_key)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        die_at("P11", lambda: execute(run.pk))
        spoil(run, SPOILED[connection.vendor][nth])
        execute(run.pk)
        run = look.fresh(run)

        assert any("cannot be read back" in event for level, event in told if level == "error")
        if effect == "repeatable":
            assert run.status == "completed"
            assert len(keys) == 2
            assert len(set(keys)) == 1
            return
        assert (run.status, len(keys)) == ("interrupted", 1)
        asked = Interrupt.objects.get(run=run, status="open")
        assert asked.kind == "outcome"
        resume_run(interrupt_id=asked.pk, value={"outcome": "succeeded", "result": "it was paid"})
        execute(run.pk)

    assert look.fresh(run).status == "completed"
    assert len(keys) == 1
    assert ToolExecution.objects.get(run=run).result == "it was paid"


def test_the_state_that_cannot_be_read_back_stops_the_run_and_stays_as_it_is(die_at, look):
    from agentruntime.models import Checkpoint

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        die_at("P11", lambda: execute(run.pk))
        head = Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()
        Checkpoint.objects.filter(pk=head.pk).update(state=[1])
        execute(run.pk)

    assert look.fresh(run).error_code == "GRAPH_CHANGED_001"
    assert Checkpoint.objects.filter(thread=run.thread_id).count() == head.version
