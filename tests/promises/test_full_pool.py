"""All connections of a process are taken: it says so, waits, and goes on."""

import threading

import pytest
from django.db import connection, connections, transaction
from django.test import Client

from agentruntime.graph import tool
from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Run
from agentruntime.tokens import create_token
from tests.agents import agent, call

pytestmark = pytest.mark.database("postgresql", why="SQLite has no pool")


@pytest.fixture
def one_connection():
    """A pool of one, for which nobody waits long."""
    options = connection.settings_dict["OPTIONS"]
    before = options["pool"]
    _renew(options, {**before, "max_size": 1, "timeout": 0.2})
    yield
    _renew(options, before)


def _renew(options, pool):
    connection.close()
    connection.close_pool()
    options["pool"] = pool


@pytest.fixture
def taken(one_connection):
    """Somebody has the only connection until the event is set."""
    has_it, release = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            Run.objects.exists()
            has_it.set()
            release.wait(20)
        connections.close_all()

    def begin():
        connection.close()
        holder.start()
        assert has_it.wait(5)

    holder = threading.Thread(target=hold)
    yield begin, release
    release.set()
    holder.join(10)


def test_requests_are_refused_and_a_worker_waits(taken, django_user_model):
    begin, release = taken
    _, token = create_token(django_user_model.objects.create_user("ann"), ["read"])

    def ask():
        return Client().get("/api/v1/threads/", HTTP_AUTHORIZATION=f"Bearer {token}").status_code

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        begin()
        worker = threading.Thread(target=lambda: (execute(run.pk), connections.close_all()))
        worker.start()
        assert ask() == 503
        assert Client().get("/health/ready").status_code == 503
        release.set()
        worker.join(20)
        assert Run.objects.get(pk=run.pk).status == "completed"
    assert ask() == 200
