"""`concurrency`: at most so many calls of a tool at once in a process, the others not started."""

import threading
import time

import pytest

from agentruntime.graph import tool
from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.lifecycle.slots import slots
from agentruntime.models import Run, ToolExecution
from tests.agents import agent, call
from tests.waiting import wait_until


class Crew:
    """Counts who works; `seen` are the statuses of all calls while one works."""

    def __init__(self, seconds=0.05):
        self.now = self.most = self.done = 0
        self.lock, self.seconds = threading.Lock(), seconds

    def work(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1
            self.done += 1


@pytest.mark.parametrize("limit", [1, 3])
def test_so_many_calls_of_a_turn_at_once_and_all_in_the_end(drive, look, limit):
    crew = Crew()

    @tool(concurrency=limit)
    def dig(n: int) -> int:
        """Dig."""
        crew.work()
        return n

    turn = [call("dig", f"c{n}", n=n) for n in range(8)]
    with agent([dig], turn) as name:
        run = drive(name)
    assert (run.status, crew.most, crew.done) == ("completed", limit, 8)
    assert look.messages(run)[-1][1] == " | ".join(map(str, range(8)))
    assert slots._held == {}


def test_a_free_place_is_taken_while_a_slow_sibling_still_works(drive):
    order = []

    @tool
    def slow() -> str:
        """Slow."""
        time.sleep(0.8)
        order.append("slow")
        return "slow"

    @tool(concurrency=1)
    def quick(n: int) -> int:
        """Quick."""
        order.append(n)
        return n

    turn = [call("slow", "s"), *(call("quick", f"q{n}", n=n) for n in range(3))]
    with agent([slow, quick], turn) as name:
        run = drive(name)
    assert (run.status, order) == ("completed", [0, 1, 2, "slow"])


def test_a_call_of_another_run_waits_and_is_not_started(drive, look):
    entered, go_on = threading.Event(), threading.Event()

    @tool(concurrency=1, effect="once")
    def press() -> str:
        """Press."""
        entered.set()
        assert go_on.wait(20)
        return "pressed"

    with agent([press], [call("press")]) as name:
        first, second = start_run(graph=name, input="1"), start_run(graph=name, input="2")
        threads = [threading.Thread(target=execute, args=(run.pk,)) for run in (first, second)]
        threads[0].start()
        assert entered.wait(20)
        threads[1].start()
        waiting = ToolExecution.objects.filter(run=second)
        wait_until(waiting.exists, 20, lambda: "the second call has its row")
        assert waiting.get().status == "pending"
        assert waiting.get().attempts == 0
        go_on.set()
        for one in threads:
            one.join(30)
        done = Run.objects.filter(status="completed")
        assert set(done.values_list("pk", flat=True)) == {first.pk, second.pk}


def test_a_call_that_fails_or_is_given_up_leaves_its_place(drive, look):
    @tool(concurrency=1, timeout=0.3)
    async def hang(n: int) -> str:
        """Hang the first time."""
        import asyncio

        if n == 0:
            await asyncio.sleep(60)
        if n == 1:
            raise ValueError("no")
        return "fine"

    turn = [call("hang", f"c{n}", n=n) for n in range(3)]
    with agent([hang], turn) as name:
        run = drive(name)
    assert [row.status for row in look.calls(run)] == ["failed", "failed", "succeeded"]
