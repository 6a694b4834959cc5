"""The demo is killed with -9 and started again: it goes on by itself, nothing is done twice."""

import pytest

from agentruntime.demo.journal import Journal
from agentruntime.demo.management.commands.demo import PASSWORD
from agentruntime.lifecycle import start_run
from agentruntime.models import Event, Run, RunStatus
from approvals.decide import decide
from approvals.models import Approval, Decision
from tests.services import free_port
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.stories,
    pytest.mark.database("sqlite"),
]

BEFORE, AFTER = ("tool.started", "approval.requested"), ("run.resumed",)


@pytest.fixture
def demo(site_process, shop):
    """Starts `manage.py demo` on this test's database and shop; ready when it has an address."""

    def start():
        port = str(free_port())
        process = site_process("demo", "--port", port, "--dir", str(shop))
        process.wait_for(PASSWORD)
        return process

    return start


def wait_for_event(kind, run):
    wait_until(lambda: Event.objects.filter(run=run, type=kind).exists(), 20, kind, pause=0.005)


@pytest.mark.parametrize("moment", [*BEFORE, *AFTER])
def test_a_killed_demo_goes_on_by_itself_and_does_nothing_twice(demo, shop, sam, lead, moment):
    first = demo()
    run = start_run(graph="support", input="Order 1042 is broken, please refund it", user=sam)
    if moment in BEFORE:
        wait_for_event(moment, run)
        first.kill()
        demo()
    wait_until(lambda: Approval.objects.pending().exists(), 20, "an approval")

    decide(approval_id=Approval.objects.get().pk, verdict="approve", user=lead)
    if moment in AFTER:
        wait_for_event(moment, run)
        first.kill()
        demo()

    wait_until(lambda: Run.objects.get(pk=run.pk).has_ended, 20, "the run's end")
    assert Run.objects.get(pk=run.pk).status == RunStatus.COMPLETED
    assert [one["kind"] for one in Journal(shop / "payments.jsonl").entries()] == ["refund"]
    assert Approval.objects.count() == Decision.objects.count() == 1
    roles = list(run.thread.messages.order_by("ordinal").values_list("role", flat=True))
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
