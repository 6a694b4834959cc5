"""What hangs holds nobody else up: places, event loops, processes."""

import asyncio
import os
import signal
import threading
import time

import pytest

from agentruntime.graph import interrupt, tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Interrupt, ToolExecution
from tests.agents import agent, call
from tests.waiting import wait_until


def test_after_n_tools_hang_for_ever_run_n_plus_1_is_served(drive, look):
    """Two threads work off runs whose tools never return; the third run needs neither to return."""
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connections

    release = threading.Event()

    @tool(timeout=0.3)
    def hang() -> str:
        """Hang."""
        release.wait(60)
        return "late"

    @tool
    def fine() -> str:
        """Fine."""
        return "fine"

    def work(run):
        execute(run.pk)
        connections.close_all()

    with agent([hang, fine], [call("hang")]) as name, ThreadPoolExecutor(2) as places:
        hung = [start_run(graph=name, input="hello") for _ in range(4)]
        for one in [places.submit(work, run) for run in hung]:
            one.result(timeout=20)
        for run in hung:
            assert look.fresh(run).status == "completed"
            assert look.calls(run)[0].error["code"] == "NODE_TIMEOUT_002"
    release.set()
    # What they did is written down when they return after all.
    wait_until(lambda: ToolExecution.objects.filter(status="succeeded").count() == 4)


def test_an_overdue_once_call_is_asked_about_and_its_late_result_settles_it(look):
    release = threading.Event()

    @tool(effect="once", timeout=0.2)
    def pay() -> str:
        """Pay."""
        release.wait(30)
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = start_run(graph=name, input="hello")
        execute(run.pk)
        assert look.fresh(run).status == "interrupted"
        asked = Interrupt.objects.get(run=run)
        assert (asked.kind, ToolExecution.objects.get().status) == ("outcome", "unknown")
        release.set()
        wait_until(lambda: look.fresh(run).status == "queued")
        asked.refresh_from_db()
        assert asked.status == "cancelled"
        execute(run.pk)
    assert look.fresh(run).status == "completed"
    assert ToolExecution.objects.get().result == "paid"


@pytest.mark.database("postgresql", why="on SQLite the deadline waits for the only writer")
def test_an_overdue_transactional_call_cannot_commit_any_more(drive, look):
    from django.contrib.auth.models import Group

    release = threading.Event()

    @tool(effect="transactional", timeout=0.3)
    def note() -> str:
        """Note."""
        Group.objects.create(name="noted")
        release.wait(30)
        return "noted"

    @tool
    def let_go() -> str:
        """Let the transaction go on while the run still holds its lease."""
        release.set()
        time.sleep(0.5)
        return "gone"

    with agent([note, let_go], [call("note", "a")], [call("let_go", "b")]) as name:
        run = drive(name)
        assert run.status == "completed"
        error = look.calls(run)[0].error
        assert error["code"] == "NODE_TIMEOUT_002"
        assert "rolled back" in error["detail"]
    assert not Group.objects.filter(name="noted").exists()


def test_an_async_tool_that_blocks_its_loop_does_not_hold_up_the_next(drive, look):
    release = threading.Event()

    @tool(timeout=0.3)
    async def block() -> str:
        """Block."""
        release.wait(30)
        return "late"

    @tool
    async def fine() -> str:
        """Fine."""
        await asyncio.sleep(0)
        return "fine"

    with agent([block, fine], [call("block")], [call("fine")]) as name:
        begun = time.monotonic()
        run = drive(name)
    assert time.monotonic() - begun < 10
    release.set()
    assert [row.status for row in look.calls(run)][1] == "succeeded"


def test_the_keeper_leaves_a_silent_loop_before_anything_is_overdue(drive, told):
    from agentruntime import event_loops

    release = threading.Event()

    @tool
    async def block() -> str:
        """Block."""
        release.wait(4)
        return "late"

    with agent([block], [call("block")]) as name:
        before = event_loops.event_loop()
        drive(name)
        release.set()
        assert event_loops.event_loop() is not before
    assert any("blocks the event loop" in event for _, event in told)


@pytest.mark.parametrize("how", ["stop", "exit"])
def test_a_tool_that_ends_the_event_loop_ends_nobody_else(drive, look, how):
    """A loop that is stopped, or left by an exit in a task, works on; the keeper beats on."""
    from agentruntime import event_loops

    leaving = []

    async def leave():
        raise SystemExit(3)

    @tool(timeout=2)
    async def end() -> str:
        """End the loop."""
        loop = asyncio.get_running_loop()
        if how == "stop":
            loop.stop()
        else:
            leaving.append(loop.create_task(leave()))
        await asyncio.sleep(0.1)
        return "still here"

    with agent([end], [call("end")]) as name:
        before = event_loops.event_loop()
        run = drive(name)
    assert (look.calls(run)[0].status, look.calls(run)[0].result) == ("succeeded", "still here")
    assert event_loops.event_loop() is before
    assert not event_loops.replace_stuck_loop()


def test_a_generator_is_not_run_by_whoever_records_the_result(drive, look):
    def endless():
        while True:
            yield 1

    @tool
    def numbers() -> dict:
        """Numbers."""
        return {"all": endless()}

    with agent([numbers], [call("numbers")]) as name:
        run = drive(name)
    assert run.status == "completed"
    row = look.calls(run)[0]
    assert (row.status, row.error["code"]) == ("succeeded", "TOOL_RESULT_001")
    assert "result.all: a generator is no value" in row.error["detail"]


def test_the_connections_of_async_orm_work_are_closed(drive):
    from django.contrib.auth.models import Group
    from django.db import connections

    opened = []

    def note():
        opened.append(connections["default"])
        return Group.objects.count()

    @tool
    async def count() -> int:
        """Count."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(note)()

    with agent([count], [call("count")]) as name:
        assert drive(name).status == "completed"
    wait_until(lambda: opened[0].connection is None)


# --- processes --------------------------------------------------------------------------------


@tool(isolation="process", timeout=60)
def add(a: int, b: int) -> dict:
    """Add."""
    return {"sum": a + b, "pid": os.getpid()}


@tool(isolation="process", timeout=60)
async def fail_alone() -> str:
    """Fail."""
    raise ConnectionError("no line")


@tool(isolation="process", timeout=6.0)
def hang_alone(place: str) -> str:
    """Hang in a way that no thread could be saved from."""
    with open(place, "w") as out:
        out.write(str(os.getpid()))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    while True:
        pass


@tool(isolation="process", effect="once", timeout=60)
def die_alone() -> str:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)


class Unsayable(Exception):
    def __str__(self):
        raise ValueError("no words")


@tool(isolation="process", timeout=60)
def exit_alone(how: str) -> str:
    """Exit, or raise what cannot say what it is."""
    if how == "raise":
        raise Unsayable
    raise SystemExit(0 if how == "exit" else "no account")


@tool(isolation="process", timeout=60)
def ask_alone() -> str:
    """Ask, which cannot be done from there."""
    return interrupt("sure?")


@pytest.mark.slow
def test_a_tool_in_a_process_returns_raises_and_is_killed(drive, look, tmp_path):
    place = tmp_path / "pid"
    calls = [call("fail_alone", "b"), call("hang_alone", "c", place=str(place))]
    # The first turn pays for the start of the server process.
    with agent([add, fail_alone, hang_alone], [call("add", "a", a=1, b=2)], calls) as name:
        run = drive(name)
    added, failed, hung = look.calls(run)
    assert added.error is None
    assert added.result["sum"] == 3
    assert added.result["pid"] != os.getpid()
    assert failed.error["detail"] == "ConnectionError: no line"
    assert hung.error["code"] == "NODE_TIMEOUT_002"

    def is_gone():
        try:
            os.kill(int(place.read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_gone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exit", "SystemExit: 0"),
        ("words", "SystemExit: no account"),
        ("raise", "Unsayable: its message cannot be read"),
    ],
)
def test_a_process_that_exits_has_said_what_became_of_its_call(drive, look, how, told):
    with agent([exit_alone], [call("exit_alone", how=how)]) as name:
        run = drive(name)
    row = look.calls(run)[0]
    assert (run.status, row.status, row.attempts) == ("completed", "failed", 1)
    assert row.error["detail"] == told


@pytest.mark.slow
def test_a_process_that_dies_leaves_the_worker_and_a_question(drive, look):
    with agent([die_alone], [call("die_alone")]) as name:
        run = drive(name)
        assert run.status == "interrupted"
        asked = Interrupt.objects.get(run=run)
        assert "exit code -9" in asked.payload["error"]
        resume_run(interrupt_id=asked.pk, value={"outcome": "failed", "error": "it died"})
        run = drive(run=run)
    assert run.status == "completed"
