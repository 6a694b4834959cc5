"""What the tests of the verbs share: a real database whose commits are real, and runs driven by
hand.
"""

import pytest


@pytest.fixture(autouse=True)
def _by_hand(transactional_db):
    """No worker takes the runs away: each test works them off itself."""
    from django.conf import settings
    from django.test import override_settings

    with override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}):
        yield


@pytest.fixture
def drive():
    """Start a run (or go on with one) and work it off until it pauses or ends."""
    from agentruntime.lifecycle import start_run
    from agentruntime.lifecycle.loop import execute

    def go(graph=None, input="hello", *, run=None, **options):
        run = run or start_run(graph=graph, input=input, **options)
        execute(run.pk)
        run.refresh_from_db()
        return run

    return go


@pytest.fixture
def look():
    """What the database holds of a run, in the words of the tests."""
    from agentruntime.models import Event, Interrupt, Message, Run, ToolExecution

    class Look:
        @staticmethod
        def messages(run):
            rows = Message.objects.filter(thread=run.thread_id).order_by("ordinal")
            return [(row.role, row.content) for row in rows]

        @staticmethod
        def calls(run):
            return list(ToolExecution.objects.filter(thread=run.thread_id).order_by("id"))

        @staticmethod
        def open(run):
            return list(Interrupt.objects.filter(run=run, status="open").order_by("created_at"))

        @staticmethod
        def events(run):
            return list(
                Event.objects.filter(run=run).order_by("seq").values_list("type", flat=True)
            )

        @staticmethod
        def fresh(run):
            return Run.objects.get(pk=run.pk)

    return Look
