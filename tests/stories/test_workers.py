"""Real worker processes that are killed, told to end, and left without their servers."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from django.core.management import execute_from_command_line as main_of
from django.db import connection

from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.stories, pytest.mark.xdist_group("workers")]
RECOVERY_GOAL = 8.0


@pytest.fixture
def marks(tmp_path):
    """What the agents of the workers noted: (name, process, moment)."""

    def read(name=""):
        file = tmp_path / "marks"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(one[0], int(one[1]), float(one[2])) for one in lines if one[0].startswith(name)]

    return read


@pytest.fixture
def release(tmp_path):
    return (tmp_path / "release").touch


@pytest.fixture
def worker(worker_process, tmp_path):
    def start(**options):
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "FAULTS_MARKS": str(tmp_path / "marks"),
            "FAULTS_RELEASE": str(tmp_path / "release"),
        }
        return worker_process(env=environment | options.pop("env", {}), **options)

    return start


@pytest.fixture(autouse=True)
def agents(transactional_db, settings, monkeypatch):
    """The agents are known here too, and this process works off nothing."""
    from agentruntime.graph.registry import unregister
    from tests.faults.work import agents as module

    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}
    for name in ("quick", "slow", "slow-once", "gated", "model"):
        unregister(f"fault-{name}")
    import importlib

    importlib.reload(module)
    yield
    from agentruntime.invariants import find_violations

    assert list(find_violations()) == []


def started(graph, **options):
    from agentruntime.lifecycle import start_run

    return start_run(graph=f"fault-{graph}", input="hello", **options)


def ended(run, timeout=30):
    from agentruntime.lifecycle import wait_for_run

    return wait_for_run(run.pk, timeout)


def test_a_killed_workers_run_is_taken_up_within_the_goal(worker, marks, release):
    first = worker()
    run = started("slow")
    wait_until(lambda: marks("slow"), 20)
    second = worker()
    killed_at = time.monotonic()
    first.kill()
    wait_until(lambda: len(marks("slow")) == 2, 20)
    seconds = marks("slow")[1][2] - killed_at
    release()
    assert ended(run).status == "completed"
    assert len(marks("quick")) == 2  # one per call, although two workers had the run
    assert seconds < RECOVERY_GOAL
    second.stop()


def test_a_polite_end_gives_the_run_back_at_once(worker, marks, release):
    """An async model call is cut, and another worker begins it within a second."""
    first = worker()
    run = started("model")
    wait_until(lambda: marks("model"), 20)
    worker()
    told_at = time.monotonic()
    first.process.terminate()
    wait_until(lambda: len(marks("model")) == 2, 20)
    seconds = marks("model")[1][2] - told_at
    assert first.wait(20) == 0
    release()
    run = ended(run)
    assert run.status == "completed"
    assert run.attempts <= 1  # the claim that was given back is not counted
    assert not run.events.filter(type="run.resumed", data__recovered=True).exists()
    assert seconds < 2.5  # the promise is 1.0; the machine of a suite is busy


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="The kernel does it on Linux.")
def test_workers_end_when_their_main_process_is_killed(worker):
    main = worker()
    children = Path(f"/proc/{main.pid}/task/{main.pid}/children").read_text().split()
    assert children
    os.kill(main.pid, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(child) for child in children), 10)


def is_alive(pid):
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("given", [("--processes", "0"), ("--threads", "-1"), ("--threads", "x")])
def test_a_count_of_workers_is_above_zero(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main_of(["manage.py", "rundramatiq", "=".join(given)])
    assert ended.value.code == 2
    assert "a whole number above zero was expected" in capsys.readouterr().err


def test_a_polite_end_lets_a_tool_finish(worker, marks, release):
    first = worker()
    run = started("slow-once")
    wait_until(lambda: marks("slow_once"), 20)
    first.process.terminate()
    time.sleep(0.3)
    release()
    assert first.wait(20) == 0
    from agentruntime.models import ToolExecution

    assert ToolExecution.objects.get(run=run).status == "succeeded"
    worker()
    assert ended(run).status == "completed"
    assert len(marks("slow_once")) == 1


def test_a_rolling_restart_under_load_fails_no_run(worker, marks):
    old = worker()
    runs = [started("quick") for _ in range(12)]
    new = worker()
    old.process.terminate()
    runs += [started("quick") for _ in range(12)]
    assert {ended(run).status for run in runs} == {"completed"}
    assert old.wait(20) == 0
    assert len(marks("quick")) == 24
    new.stop()


def test_workers_without_redis_find_everything_by_the_sweep(worker, marks):
    """The worker's Redis is not there: neither at its start nor later."""
    if "REDIS_URL" not in os.environ:
        pytest.skip("the suite runs without Redis on this database already")
    worker(env={"REDIS_URL": "redis://127.0.0.1:1/0"})
    begun = time.monotonic()
    run = started("quick")
    assert ended(run).status == "completed"
    assert time.monotonic() - begun < 10


def test_a_broker_that_is_down_costs_a_request_little(settings, monkeypatch):
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    from agentruntime import broker, dispatch

    before = dramatiq.get_broker()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    try:
        assert isinstance(broker.make_broker(), RedisBroker)
        begun = time.monotonic()
        for _ in range(5):
            started("quick")
        assert time.monotonic() - begun < 3
    finally:
        dramatiq.set_broker(before)
        monkeypatch.setattr(dispatch, "_silent_until", 0.0)


def test_a_stopped_worker_that_comes_back_is_fenced_out(worker, marks, release):
    first = worker()
    run = started("slow")
    wait_until(lambda: marks("slow"), 20)
    os.killpg(first.pid, signal.SIGSTOP)
    worker()
    wait_until(lambda: len(marks("slow")) == 2, 20)
    os.killpg(first.pid, signal.SIGCONT)
    release()
    run = ended(run)
    assert run.status == "completed"
    from agentruntime.models import Checkpoint

    assert Checkpoint.objects.filter(run=run).count() == run.thread.head_version
    assert len(marks("quick")) == 2


@pytest.mark.database("postgresql", why="SQLite has no sessions to look at")
def test_no_session_is_idle_in_a_transaction_while_models_work(worker, marks, release):
    name = "the-waiting-worker"  # the sessions of this test's own process are not meant
    worker(threads=32, env={"PGAPPNAME": name})
    runs = [started("model") for _ in range(30)]
    wait_until(lambda: len(marks("model")) == 30, 30)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state, count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s GROUP BY state",
            [name],
        )
        states = dict(cursor.fetchall())
    assert "idle in transaction" not in states
    assert 1 <= sum(states.values()) <= 8  # thirty waiting runs, a pool of eight
    release()
    assert {ended(run, 60).status for run in runs} == {"completed"}


@pytest.mark.database("postgresql", why="SQLite has no connections to cut")
def test_connections_cut_under_load_lose_nothing(worker, marks):
    name = "the-cut-worker"
    worker(threads=8, env={"PGAPPNAME": name})
    runs = []
    for _ in range(6):
        runs += [started("quick") for _ in range(5)]
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = %s",
                [name],
            )
        time.sleep(0.2)
    assert {ended(run, 60).status for run in runs} == {"completed"}
