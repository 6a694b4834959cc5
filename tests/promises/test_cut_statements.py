"""A fault at any statement of a story: cut before it, cut after it, refused in passing. Everything
happens once, and comes to the same.

Each kind is tried at every 61st statement, each at others; `EVERY=1` in the environment tries all.
"""

import os

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, InterfaceError, connection

from agentruntime.graph import ApprovalRule, interrupt, once, tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import DatabaseTime, Interrupt, Run, ToolExecution
from tests.agents import agent, call
from tests.faults.proxy import through_a_proxy

pytestmark = pytest.mark.database("postgresql", why="SQLite is in this process: no line to cut")
EVERY = int(os.environ.get("EVERY", "61"))
KINDS = ("before", "after", "40001", "57014", "53300")
# Statements that are a transaction of their own: with them nobody sends a COMMIT.
AT_ONCE = "WITH "


@pytest.fixture
def boss(django_user_model):
    from django.contrib.auth.models import Permission

    user = django_user_model.objects.create_user("boss")
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


@pytest.fixture
def proxy():
    with through_a_proxy() as one:
        yield one


@pytest.fixture
def payments():
    """An agent that looks, pays when a person agrees, writes a row, and asks; and what it did."""
    done = []

    @tool
    def look() -> str:
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
        once("tell", done.append, "tell")
        return interrupt("sure?")

    turns = [call("look", "a"), call("pay", "b"), call("note", "c")], [call("ask", "d")]
    with agent([look, pay, note, ask], *turns) as name:
        yield name, done


def insist(work):
    """What a person does whose page says that the database is away: try again."""
    for _ in range(5):
        try:
            return work()
        except (DatabaseError, InterfaceError):
            connection.close()
    return work()


def tell(name, boss, key):
    """Start the run of this key and see it through to its end."""
    from approvals.decide import decide

    def answer(asked):
        if asked.kind == "approval":
            decide(approval_id=asked.approval.pk, verdict="approve", user=boss)
        else:
            resume_run(interrupt_id=asked.pk, value="yes", user=boss)

    run = insist(lambda: start_run(graph=name, input="hello", idempotency_key=key))
    for _ in range(12):
        execute(run.pk)
        insist(run.refresh_from_db)
        if run.has_ended:
            break
        for asked in insist(lambda: open_questions(run)):
            insist(lambda asked=asked: answer(asked))
        insist(lambda: come_to_be_due(run))
    return run


def open_questions(run):
    asked = Interrupt.objects.filter(run=run, status="open")
    return list(asked.select_related("approval"))


def come_to_be_due(run):
    mine = Run.objects.filter(pk=run.pk)
    mine.filter(status="queued").update(wake_at=None)
    mine.filter(status="running").update(lease_expires_at=DatabaseTime(-1))


def judge(run, done, where):
    assert (run.status, run.error) == ("completed", None), where
    assert sorted(done) == ["look", "pay", "tell"], where
    assert Group.objects.filter(name="noted").count() == 1, where
    rows = ToolExecution.objects.filter(run=run)
    assert {row.status for row in rows} == {"succeeded"}, where
    assert not Interrupt.objects.filter(run=run).exclude(status="answered").exists(), where


def begin_again(done):
    done.clear()
    Group.objects.filter(name="noted").delete()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_statement_changes_nothing(proxy, boss, payments, kind):
    name, done = payments
    judge(tell(name, boss, "undisturbed"), done, "undisturbed")
    proxy.restart(lambda text, number: None)
    begin_again(done)
    tell(name, boss, "counted")
    count, offset = proxy.count, KINDS.index(kind) * EVERY // len(KINDS)
    assert count > 50
    for nth in range(1 + offset, count + 1, EVERY):
        begin_again(done)
        hit = []

        def plan(text, number, nth=nth, hit=hit):
            if number != nth:
                return None
            hit.append(text)
            return kind

        proxy.restart(plan)
        run = tell(name, boss, f"{kind} {nth}")
        proxy.restart(lambda text, number: None)
        judge(run, done, f"{kind} at statement {nth}: {hit}")


@pytest.mark.parametrize("kind", ["before", "after"])
def test_each_statement_that_is_its_own_commit_may_lose_its_answer(proxy, boss, payments, kind):
    """The claims and steps that PostgreSQL takes in one statement: there is no COMMIT to cut."""
    name, done = payments
    nth = 0
    while True:
        nth += 1
        begin_again(done)
        hit = []

        def plan(text, number, nth=nth, hit=hit):
            if not text.lstrip().startswith(AT_ONCE):
                return None
            hit.append(text)
            return kind if len(hit) == nth else None

        proxy.restart(plan)
        run = tell(name, boss, f"{kind} {nth}")
        proxy.restart(lambda text, number: None)
        judge(run, done, f"{kind} its {nth}th")
        if len(hit) < nth:
            break
    assert nth > 3
