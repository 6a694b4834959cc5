"""The checker finds what it is there to find: one planted fault per invariant."""

import uuid
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction

from agentruntime.graph import ApprovalRule, interrupt, tool
from agentruntime.invariants import Scope, find_violations, invariants
from agentruntime.models import (
    BranchStep,
    Checkpoint,
    DatabaseTime,
    Event,
    Interrupt,
    Message,
    Run,
    Thread,
    ToolExecution,
)
from tests.agents import agent, call
from tests.approvals.test_invariants import PLANTED as OF_APPROVALS

pytestmark = pytest.mark.unsound


@pytest.fixture
def story(drive):
    """A completed run of two calls, and another that waits with a question."""

    @tool
    def look_up() -> str:
        """Look."""
        return "there"

    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool(approval=ApprovalRule(title="Go"))
    def gated() -> str:
        """Go."""
        return interrupt("sure?")

    with agent([look_up, pay], [call("look_up", "a"), call("pay", "b")]) as name:
        done = drive(name)
    with agent([gated], [call("gated")]) as name:
        waiting = drive(name)
    return done, waiting


def lose_checkpoint(done, waiting):
    Checkpoint.objects.filter(run=done, version=2).delete()


def lose_message(done, waiting):
    Message.objects.filter(thread=done.thread_id, ordinal=2).delete()


def lose_event(done, waiting):
    Event.objects.filter(run=done, seq=3).delete()


def misplace_message(done, waiting):
    Message.objects.filter(thread=done.thread_id, ordinal=1).update(version=99)


def turn_token_back(done, waiting):
    Run.objects.filter(pk=done.pk).update(fencing_token=9)
    Checkpoint.objects.filter(run=done, version=2).update(fencing_token=9)


def forge_token(done, waiting):
    ToolExecution.objects.filter(run=done).update(fencing_token=99)


def mix_threads(done, waiting):
    Interrupt.objects.filter(run=waiting).update(thread=done.thread_id)


def lie_about_the_end(done, waiting):
    Run.objects.filter(pk=done.pk).update(status="failed", error_code="X")


def end_twice(done, waiting):
    thread = Thread.objects.get(pk=done.thread_id)
    Event.objects.create(
        thread=thread, run=done, seq=thread.event_count + 1, type="run.completed", data={}
    )
    Thread.objects.filter(pk=thread.pk).update(event_count=thread.event_count + 1)


def work_after_the_end(done, waiting):
    thread = Thread.objects.get(pk=done.thread_id)
    Event.objects.create(
        thread=thread, run=done, seq=thread.event_count + 1, type="tool.started", data={}
    )
    Thread.objects.filter(pk=thread.pk).update(event_count=thread.event_count + 1)


def start_after_a_stop(done, waiting):
    Run.objects.filter(pk=done.pk).update(status="stopped", stop_requested_at=DatabaseTime(-3600))


def forget_a_run(done, waiting):
    Interrupt.objects.filter(run=waiting).update(status="cancelled")
    Run.objects.filter(pk=waiting.pk).update(status="queued", queued_at=DatabaseTime(-3600))


def poison(done, waiting):
    Run.objects.filter(pk=waiting.pk).update(attempts=60)


def start_without_attempt(done, waiting):
    ToolExecution.objects.filter(run=done).update(first_started_at=None)


def forget_the_time(done, waiting):
    ToolExecution.objects.filter(run=done).update(finished_at=None)


def spoil(done, waiting):
    ToolExecution.objects.filter(run=done).update(state_update=[1])


def run_the_declined(done, waiting):
    ToolExecution.objects.filter(run=done).update(
        status="declined", error={"code": "CALL_DECLINED_001", "detail": "no"}
    )


def start_again(done, waiting):
    thread = Thread.objects.get(pk=done.thread_id)
    started = Event.objects.filter(run=done, type="tool.started").last()
    Event.objects.create(
        thread=thread, run=done, seq=thread.event_count + 1, type="tool.started",
        data={**started.data, "attempt": 2, "why": "the same key"},
    )  # fmt: skip
    Thread.objects.filter(pk=thread.pk).update(event_count=thread.event_count + 1)


def start_without_word(done, waiting):
    thread = Thread.objects.get(pk=done.thread_id)
    started = Event.objects.filter(run=done, type="tool.started").last()
    Event.objects.create(
        thread=thread, run=done, seq=thread.event_count + 1, type="tool.started",
        data={**started.data, "attempt": 2, "why": "a person"},
    )  # fmt: skip
    Thread.objects.filter(pk=thread.pk).update(event_count=thread.event_count + 1)


def leave_running(done, waiting):
    ToolExecution.objects.filter(run=done).update(status="running")


def close_the_question(done, waiting):
    Interrupt.objects.filter(run=waiting).update(status="cancelled")


def leave_a_question(done, waiting):
    Interrupt.objects.filter(run=waiting).update(run=done, thread=done.thread_id)


def wake_twice(done, waiting):
    thread = Thread.objects.get(pk=waiting.thread_id)
    for number in (1, 2):
        Event.objects.create(
            thread=thread, run=waiting, seq=thread.event_count + number, type="run.queued",
            data={"interrupt": "one"},
        )  # fmt: skip
    Thread.objects.filter(pk=thread.pk).update(event_count=thread.event_count + 2)


def leave_unknown_unasked(done, waiting):
    ToolExecution.objects.filter(run=waiting).update(
        status="unknown", attempts=1, first_started_at=DatabaseTime(), started_at=DatabaseTime()
    )


def start_without_a_yes(done, waiting):
    ToolExecution.objects.filter(run=waiting).update(
        attempts=1, first_started_at=DatabaseTime(), started_at=DatabaseTime()
    )


def unpair(done, waiting):
    Message.objects.filter(thread=done.thread_id, role="tool").update(tool_call_id="else")


def branch(done, opened_at="2", index=0, number=0, **more):
    """Write a step of a branch as no worker would."""
    BranchStep.objects.create(
        thread_id=done.thread_id, run=done, opened_at=opened_at, index=index, number=number,
        **{"next_node": "model", "result": {"until": "tools"}, "version": 2, **more},
    )  # fmt: skip


def lose_a_branch_step(done, waiting):
    branch(done)
    branch(done, number=2)


def lose_a_branch(done, waiting):
    branch(done)
    branch(done, index=2)


def open_nowhere(done, waiting):
    branch(done, opened_at="77")


def turn_back_in_a_branch(done, waiting):
    branch(done, fencing_token=1)
    branch(done, number=1)


def forget_to_count(done, waiting):
    branch(done)
    branch(done, number=1)


def join_too_early(done, waiting):
    joined = Checkpoint.objects.get(thread=done.thread_id, version=3)
    Checkpoint.objects.filter(thread=done.thread_id, version=2).update(next_node=joined.node)
    branch(done)


PLANTED = {
    "branch steps are 0..n": lose_a_branch_step,
    "branches of a fork are 0..k": lose_a_branch,
    "no branch without its opening": open_nowhere,
    "tokens of a branch never fall": turn_back_in_a_branch,
    "steps of branches are counted": forget_to_count,
    "branches end before they are joined": join_too_early,
    "checkpoints are 1..n": lose_checkpoint,
    "messages are 1..m": lose_message,
    "events have no holes": lose_event,
    "no message without its checkpoint": misplace_message,
    "tokens never fall": turn_token_back,
    "no token from the future": forge_token,
    "rows stay in their thread": mix_threads,
    "the last event tells the status": lie_about_the_end,
    "one end": end_twice,
    "no work after the end, none while waiting": work_after_the_end,
    "stop stops": start_after_a_stop,
    "nothing is lost": forget_a_run,
    "poison ends": poison,
    "started means attempted": start_without_attempt,
    "an outcome is whole": forget_the_time,
    "an outcome can be read back": spoil,
    "denied is never run": run_the_declined,
    "completed is final": start_again,
    "no second start of a once call by itself": start_again,
    "a person's retry is used once": start_without_word,
    "nothing runs without a worker": leave_running,
    "waiting means asked": close_the_question,
    "no question of an ended run": leave_a_question,
    "an answer wakes once": wake_twice,
    "unknown is asked about": leave_unknown_unasked,
    "a gated call starts with a yes": start_without_a_yes,
    "calls and results pair": unpair,
}


def add_a_run(done, waiting):
    Run.objects.create(thread_id=waiting.thread_id, graph=waiting.graph)


def run_without_lease(done, waiting):
    Run.objects.filter(pk=done.pk).update(status="running", finished_at=None)


def add_the_same_call(done, waiting):
    row = ToolExecution.objects.filter(run=done).first()
    row.pk = None
    row.save(force_insert=True)


def ask_the_same(done, waiting):
    row = Interrupt.objects.get(run=waiting)
    row.pk = uuid.uuid4()
    row.save(force_insert=True)


def add_the_same_version(done, waiting):
    row = Checkpoint.objects.get(run=done, version=2)
    row.pk = None
    row.save(force_insert=True)


# What a constraint of the database makes impossible; the query proves that it is still there.
BY_CONSTRAINT = {
    "one active run per thread": add_a_run,
    "running means leased": run_without_lease,
    "one row per call": add_the_same_call,
    "a question stands once": ask_the_same,
}


@pytest.mark.parametrize("plant", [*BY_CONSTRAINT.values(), add_the_same_version])
def test_what_a_constraint_forbids_cannot_be_planted(story, plant):
    with pytest.raises(IntegrityError), transaction.atomic():
        plant(*story)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(story, name):
    assert list(find_violations()) == []
    PLANTED[name](*story)
    assert name in {one.invariant for one in find_violations()}


def test_each_invariant_has_a_planted_fault_or_a_constraint():
    known = {one.name for one in invariants()} - {name for name, _ in OF_APPROVALS}
    assert known == set(PLANTED) | set(BY_CONSTRAINT)


def test_the_command_prints_what_it_finds_and_says_so(story, capsys):
    done, waiting = story
    call_command("verify_history", stdout=StringIO())
    lose_checkpoint(*story)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("verify_history", stdout=out)
    assert str(done.thread_id) in out.getvalue()
    call_command("verify_history", thread=str(waiting.thread_id), stdout=StringIO())
    assert list(find_violations(Scope(thread=waiting.thread_id))) == []


def test_the_books_of_a_provider_are_compared(story, tmp_path):
    done, _ = story
    key = ToolExecution.objects.get(run=done, tool="pay").call_key
    bank = tmp_path / "bank.jsonl"
    line = '{{"phase": "applied", "key": "{}"}}\n'
    bank.write_text(line.format(key))
    call_command("verify_history", bank=bank, stdout=StringIO())
    bank.write_text(line.format(key) * 2 + line.format("nobody:knows"))
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("verify_history", bank=bank, stdout=out)
    assert "applied 2 times" in out.getvalue()
    assert "in no ledger" in out.getvalue()
