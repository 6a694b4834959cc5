"""The statements that PostgreSQL takes in one go keep the same guards as the slower way: who was
fenced out, who knows an old head, and who brings the outcome of another attempt, writes nothing.
"""

import pytest
from django.db import IntegrityError, transaction

from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.models import (
    Checkpoint,
    DatabaseTime,
    Event,
    Lease,
    Message,
    Run,
    Thread,
    ToolExecution,
)
from agentruntime.models.claim_statement import claim_at_once
from agentruntime.models.intent_statement import write_intents
from agentruntime.models.settle_statement import settle_calls
from agentruntime.models.step_statement import Added, write_last_steps, write_steps
from tests.agents import agent

pytestmark = [
    pytest.mark.database("postgresql", why="elsewhere the ORM does it"),
    pytest.mark.unsound,
]


@pytest.fixture
def held():
    """A run that is held with the token 1, its thread at version 1; it still asks nothing."""
    with agent([]) as name:
        run = start_run(graph=name, input="hello")
        claim_run(run.pk)
        run.refresh_from_db()
        yield run


def added(next_node="model"):
    message = {"step": 1, "id": "5f0c2a36-6d0b-4c2e-9d0c-0c1a7e7f3a11", "role": "assistant",
               "content": "hello", "tool_calls": [], "tool_call_id": "", "extra": {}}  # fmt: skip
    step = {"node": "model", "next_node": next_node, "state": {}, "messages": 1}
    return Added([step], [message], [{"type": "node.finished", "data": {"node": "model"}}])


def lease(run, token=1):
    return Lease(run.pk, run.thread_id, token)


def stored(run):
    thread = Thread.objects.get(pk=run.thread_id)
    return (
        thread.head_version, thread.message_count, thread.event_count,
        *(model.objects.filter(thread=thread).count() for model in (Checkpoint, Message, Event)),
        Run.objects.get(pk=run.pk).status,
    )  # fmt: skip


def fenced_out(run):
    return lease(run, 2), 1


def of_another_run(run):
    Run.objects.filter(pk=run.pk).update(
        status="queued", lease_expires_at=None, lease_owner="", attempts=0
    )
    return lease(run), 1


def behind(run):
    return lease(run), 0


def ahead(run):
    return lease(run), 2


@pytest.mark.parametrize("write", [write_steps, write_last_steps])
@pytest.mark.parametrize("spoil", [fenced_out, of_another_run, behind, ahead])
def test_a_step_of_who_may_not_write_leaves_nothing(held, write, spoil):
    given = spoil(held)
    before = stored(held)
    assert write(*given, added()) is None
    assert stored(held) == before


def test_a_step_is_numbered_by_the_thread(held):
    before = stored(held)
    assert write_steps(lease(held), 1, added()).head_version == 2
    assert stored(held) == (*(number + 1 for number in before[:-1]), "running")


def test_the_last_step_ends_no_run_that_is_to_stop(held):
    Run.objects.filter(pk=held.pk).update(stop_requested_at=DatabaseTime())
    before = stored(held)
    assert write_last_steps(lease(held), 1, added("__end__")) is None
    assert stored(held) == before


@pytest.fixture
def row(held):
    """A call that is running, in its second attempt."""
    return ToolExecution.objects.create(
        thread_id=held.thread_id, run=held, call_key="m:1", tool="pay", status="running",
        fencing_token=1, attempts=2, first_started_at=DatabaseTime(), started_at=DatabaseTime(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("token", "attempts", "status", "is_taken"),
    [(1, 2, "running", True), (0, 2, "running", False), (2, 2, "running", False),
     (1, 1, "running", False), (1, 2, "pending", False), (1, 2, "unknown", False)],
)  # fmt: skip
def test_only_the_attempt_that_is_under_way_is_settled(row, token, attempts, status, is_taken):
    ToolExecution.objects.filter(pk=row.pk).update(status=status)
    outcome = {
        "call": row.pk, "attempts": attempts, "status": "succeeded", "result": "paid",
        "state_update": {}, "error": None,
    }  # fmt: skip
    before = stored(row.run)
    taken = settle_calls(lease(row.run, token), [outcome], [{"type": "tool.finished", "data": {}}])
    row.refresh_from_db()
    assert (row.status, row.result) == (("succeeded", "paid") if is_taken else (status, None))
    assert taken == (before[2] + 1 if is_taken else None)
    assert stored(row.run)[2] == before[2] + is_taken


def intent(key="m:2"):
    return ToolExecution(
        call_key=key, tool_call_id="2", tool="look", status="running", attempts=1, fencing_token=1
    )


def begin(run, token, *calls):
    return write_intents(lease(run, token), calls, [{"type": "tool.started", "data": {}}])


def to_stop(run):
    Run.objects.filter(pk=run.pk).update(stop_requested_at=DatabaseTime())
    return lease(run), 1


@pytest.mark.parametrize("spoil", [fenced_out, of_another_run, to_stop])
def test_no_call_begins_for_who_may_not_start_it(held, spoil):
    who, _ = spoil(held)
    before = stored(held)
    assert begin(held, who.fencing_token, intent()) is None
    assert stored(held) == before
    assert not ToolExecution.objects.exists()


def test_calls_that_begin_are_written_with_their_news(held):
    before = stored(held)
    ids, event_count = begin(held, 1, intent(), intent("m:3"))
    assert set(ids) == {"m:2", "m:3"}
    assert event_count == before[2] + 1 == stored(held)[2]
    row = ToolExecution.objects.get(pk=ids["m:3"])
    assert (row.tool, row.status, row.attempts, row.arguments) == ("look", "running", 1, {})
    assert row.started_at == row.first_started_at
    assert row.finished_at is None


def test_a_call_that_is_there_is_not_written_again(held, row):
    with pytest.raises(IntegrityError), transaction.atomic():
        begin(held, 1, intent(row.call_key))


def free(run, **columns):
    Run.objects.filter(pk=run.pk).update(
        **{"status": "queued", "lease_expires_at": None, "lease_owner": "", "attempts": 0} | columns
    )


@pytest.mark.parametrize(
    ("columns", "is_taken"),
    [({}, True), ({"wake_at": DatabaseTime(60)}, False), ({"is_in_line": True}, False),
     ({"attempts": 5}, False), ({"status": "completed", "finished_at": DatabaseTime()}, False)],
)  # fmt: skip
def test_only_a_run_that_is_free_and_due_is_claimed(held, columns, is_taken):
    assert claim_at_once(held.pk, "me", 6.0, 5) is None  # somebody has it
    free(held, **columns)
    before = stored(held)
    assert (claim_at_once(held.pk, "me", 6.0, 5) is not None) == is_taken
    if not is_taken:
        assert stored(held) == before
