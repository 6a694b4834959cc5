"""Who reads a row in order to write it has its lock, so that whoever comes second waits."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connections, transaction

from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.models import Run, Thread
from tests.agents import agent

pytestmark = [
    pytest.mark.database("postgresql", why="SQLite has one writer at a time"),
    pytest.mark.unsound,
]


def is_locked(row):
    """Whether another connection cannot have the row at once."""

    def ask():
        try:
            with transaction.atomic():
                type(row).objects.select_for_update(nowait=True).get(pk=row.pk)
            return False
        except OperationalError:
            return True
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        return other.submit(ask).result(10)


@pytest.mark.parametrize(
    "take",
    [
        lambda claim: Run.locked(claim.run.pk),
        lambda claim: Run.held(claim.lease),
        lambda claim: Thread.locked(claim.run.thread_id),
    ],
    ids=["a run", "a run that is held", "a thread"],
)
def test_what_is_read_to_be_written_is_locked(take):
    with agent([]) as name:
        run = start_run(graph=name, input="hello")
        claim = claim_run(run.pk)
    with transaction.atomic():
        row = take(claim)
        assert is_locked(row)
    assert not is_locked(row)
