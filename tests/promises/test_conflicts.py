"""What PostgreSQL makes fail in passing is done again, and comes to the same."""

import threading

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from agentruntime.graph import tool
from agentruntime.models.transactions import durably
from tests.agents import agent, call
from tests.faults.triggers import failing

pytestmark = pytest.mark.database("postgresql", why="SQLite has no SQLSTATE to inject")
TABLES = ("run", "thread", "checkpoint", "message", "toolexecution", "event")
PASSING = ("40001", "40P01", "53100", "57014", "55P03")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("sqlstate", PASSING)
def test_an_error_in_passing_changes_nothing(drive, look, table, sqlstate):
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    @tool(effect="transactional")
    def note() -> str:
        """Note."""
        Group.objects.create(name="noted")
        return "noted"

    with (
        agent([pay, note], [call("pay", "a"), call("note", "b")]) as name,
        failing(f"agentruntime_{table}", sqlstate, times=3),
    ):
        run = drive(name)

    assert run.status == "completed"
    assert len(ran) == 1
    assert Group.objects.filter(name="noted").count() == 1
    assert [row.status for row in look.calls(run)] == ["succeeded", "succeeded"]


def test_a_database_that_stays_full_starts_no_tool_and_fails_no_run(drive, look, monkeypatch):
    from django.conf import settings
    from django.test import override_settings

    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    impatient = {**settings.AGENTRUNTIME, "DATABASE_PATIENCE_SECONDS": 0.2}
    with agent([pay], [call("pay")]) as name, override_settings(AGENTRUNTIME=impatient):
        with failing("agentruntime_toolexecution", "53100", times=10**6):
            run = drive(name)
            assert (run.status, ran) == ("queued", [])
        run = drive(run=run)
        assert run.status == "queued"  # not due yet: nothing is tried in a hot loop
        type(run).objects.filter(pk=run.pk).update(wake_at=None)
        run = drive(run=run)

    assert (run.status, ran) == ("completed", [1])


def test_idle_connections_that_were_cut_hold_no_transaction_up():
    """A server that was restarted leaves a pool of dead connections behind."""
    together = threading.Barrier(6)

    def hold_one():
        connection.ensure_connection()
        together.wait(10)
        connections.close_all()

    holders = [threading.Thread(target=hold_one) for _ in range(6)]
    for one in holders:
        one.start()
    for one in holders:
        one.join()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    connection.close()
    found_dead = connection.pool.get_stats().get("connections_lost", 0)
    assert durably(Group.objects.count) == 0
    # The others were dropped without being tried one by one.
    assert connection.pool.get_stats()["connections_lost"] - found_dead < 6
