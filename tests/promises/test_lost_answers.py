"""A COMMIT whose answer is lost has landed or not; either way everything happens once.

The commits of a whole story are cut one after the other: start, claims, intents, records, steps,
the pause, the decision, the end.
"""

import itertools

import pytest
from django.contrib.auth.models import Group

from agentruntime.graph import ApprovalRule, tool
from agentruntime.lifecycle import resume_run, retry_run, start_run, stop_run
from agentruntime.lifecycle.delete import delete_thread
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Interrupt, Run, Thread
from tests.agents import agent, call
from tests.faults.commits import cut_at_commit


@pytest.fixture
def boss(django_user_model):
    from django.contrib.auth.models import Permission

    user = django_user_model.objects.create_user("boss")
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


def story(boss, done):
    """A look, a gated payment, a transactional note, a question of the body; from start to end."""
    from approvals.decide import decide

    @tool
    def look_up() -> str:
        """Look."""
        done.append("look")
        return "there"

    @tool(effect="once", approval=ApprovalRule(title="Pay"))
    def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    @tool(effect="transactional")
    def note() -> str:
        """Note."""
        Group.objects.create(name="noted")
        return "noted"

    @tool
    def ask() -> str:
        """Ask."""
        from agentruntime.graph import interrupt, once

        once("tell", done.append, "tell")
        return interrupt("sure?")

    turns = [call("look_up", "a"), call("pay", "b"), call("note", "c")], [call("ask", "d")]
    with agent([look_up, pay, note, ask], *turns) as name:
        run = start_run(graph=name, input="hello")
        for _ in range(12):
            execute(run.pk)
            run.refresh_from_db()
            if run.has_ended:
                break
            for asked in Interrupt.objects.filter(run=run, status="open"):
                if asked.kind == "approval":
                    decide(approval_id=asked.approval.pk, verdict="approve", user=boss)
                else:
                    resume_run(interrupt_id=asked.pk, value="yes", user=boss)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "did not land"])
def test_each_commit_of_a_story_may_lose_its_answer(boss, look, lands):
    for nth in itertools.count(1):
        done = []
        Group.objects.filter(name="noted").delete()
        with cut_at_commit(nth, lands=lands) as cut:
            run = story(boss, done)
        where = f"cut at commit {nth}"
        assert run.status == "completed", where
        assert sorted(done) == ["look", "pay", "tell"], where
        assert Group.objects.filter(name="noted").count() == 1, where
        assert Run.objects.count() == nth, where
        assert all(row.status == "succeeded" for row in look.calls(run)), where
        assert Interrupt.objects.filter(run=run).exclude(status="answered").count() == 0, where
        if not cut.happened:
            break
    assert nth > 15


def test_an_answer_that_landed_is_no_second_answer(drive, boss):
    @tool
    def ask() -> str:
        """Ask."""
        from agentruntime.graph import interrupt

        return interrupt("sure?")

    with agent([ask], [call("ask")]) as name:
        run = drive(name)
        asked = Interrupt.objects.get(run=run)
        with cut_at_commit(1, lands=True) as cut:
            resume_run(interrupt_id=asked.pk, value="yes", user=boss)
        assert cut.happened
        run.refresh_from_db()
        assert run.status == "queued"


def test_a_stop_a_retry_and_a_deletion_that_landed_are_done(drive):
    @tool
    def fail() -> str:
        """Fail."""
        return "no"

    with agent([fail], [call("fail")]) as name:
        run = start_run(graph=name, input="hello")
        with cut_at_commit(1, lands=True):
            assert stop_run(run_id=run.pk).status == "stopped"
        failed = drive(name, config={"recursion_limit": 1})
        assert failed.error_code == "RECURSION_LIMIT_001"
        with cut_at_commit(1, lands=True):
            assert retry_run(run_id=failed.pk, config={"recursion_limit": 9}).status == "queued"
        with cut_at_commit(1, lands=True):
            delete_thread(thread_id=failed.thread_id)
        assert not Thread.objects.filter(pk=failed.thread_id).exists()
