"""A database that is away for longer than a worker waits: what was done is recorded when it is
back, and the run goes on as if nobody had had it.
"""

import pytest
from django.conf import settings
from django.test import override_settings

from agentruntime.graph import tool
from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.loop import execute
from tests.agents import agent, call
from tests.faults.proxy import through_a_proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.database("postgresql", why="SQLite is in this process")


@pytest.mark.parametrize("effect", ["repeatable", "once"])
def test_what_a_worker_had_to_leave_is_recorded_and_given_back(effect, look):
    ran = []
    impatient = {**settings.AGENTRUNTIME, "DATABASE_PATIENCE_SECONDS": 0.2}
    with through_a_proxy() as proxy, override_settings(AGENTRUNTIME=impatient):

        @tool(effect=effect)
        def pay() -> str:
            """Pay; meanwhile the database goes away."""
            ran.append(1)
            proxy.restart(lambda text, number: "before")
            return "paid"

        with agent([pay], [call("pay")]) as name:
            run = start_run(graph=name, input="hello")
            execute(run.pk)
            proxy.restart(lambda text, number: None)
            wait_until(lambda: look.fresh(run).status == "queued")
            assert look.fresh(run).attempts == 0
            assert [row.status for row in look.calls(run)] == ["succeeded"]
            execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert ran == [1]
