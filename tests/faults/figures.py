"""How fast a run goes on: `python -m tests.services --durable -- python -m tests.faults.figures`.

After SIGKILL of its worker, after SIGTERM, from a decision to the start of the gated tool, from a
stop to the end of the run. Two worker processes on PostgreSQL and Redis; the tables are made in the
database of DATABASE_URL.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processes import READY, SiteProcess
from tests.waiting import wait_until


class Stage:
    """The workers, the marks of their tools, and what is asked of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._logs = folder, 0
        self.workers: list[SiteProcess] = []

    def worker(self) -> SiteProcess:
        self._logs += 1
        log = self._folder / f"worker-{self._logs}.log"
        process = SiteProcess(
            ["rundramatiq", "--processes", "1", "--threads", "8"], dict(os.environ), log
        )
        process.wait_for(READY)
        self.workers.append(process)
        return process

    def marks(self, name: str) -> list[tuple[int, float]]:
        file = Path(os.environ["FAULTS_MARKS"])
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(int(one[1]), float(one[2])) for one in lines if one[0] == name]

    def fresh(self) -> None:
        """Forget the marks, and let the tools wait again."""
        for name in ("FAULTS_MARKS", "FAULTS_RELEASE"):
            Path(os.environ[name]).unlink(missing_ok=True)

    def start(self, graph: str) -> Any:
        from agentruntime.lifecycle import start_run

        return start_run(graph=f"fault-{graph}", input="hello")

    def finish(self, run: Any) -> None:
        from agentruntime.lifecycle import wait_for_run

        Path(os.environ["FAULTS_RELEASE"]).touch()
        status = wait_for_run(run.pk, 30).status
        assert status == "completed", status

    def owner_of(self, pid: int) -> SiteProcess:
        """The worker whose process this is; its group is the id of its master."""
        return next(one for one in self.workers if one.pid == os.getpgid(pid))


def until_taken_up(
    stage: Stage, graph: str, mark: str, end: Callable[[SiteProcess], None]
) -> float:
    """Seconds from `end` of the worker that has the run until another begins its work."""
    stage.fresh()
    run = stage.start(graph)
    wait_until(lambda: stage.marks(mark), 30)
    victim = stage.owner_of(stage.marks(mark)[0][0])
    moment = time.monotonic()
    end(victim)
    wait_until(lambda: len(stage.marks(mark)) > 1, 30)
    seconds = stage.marks(mark)[1][1] - moment
    stage.finish(run)
    victim.stop(40)
    stage.workers.remove(victim)
    stage.worker()
    return seconds


def from_decision_to_start(stage: Stage, boss: Any) -> float:
    from agentruntime.lifecycle import wait_for_run
    from agentruntime.models import Interrupt
    from approvals.decide import decide

    stage.fresh()
    run = stage.start("gated")
    wait_for_run(run.pk, 30)
    approval = Interrupt.objects.get(run=run).approval
    moment = time.monotonic()
    decide(approval_id=approval.pk, verdict="approve", user=boss)
    wait_until(lambda: stage.marks("gated"), 30, pause=0.005)
    seconds = stage.marks("gated")[0][1] - moment
    wait_for_run(run.pk, 30)
    return seconds


def from_stop_to_end(stage: Stage) -> float:
    from agentruntime.lifecycle import stop_run, wait_for_run

    stage.fresh()
    run = stage.start("slow")
    wait_until(lambda: stage.marks("slow"), 30)
    moment = time.monotonic()
    stop_run(run_id=run.pk)
    assert wait_for_run(run.pk, 30).status == "stopped"
    seconds = time.monotonic() - moment
    Path(os.environ["FAULTS_RELEASE"]).touch()
    return seconds


def tell(name: str, values: list[float]) -> None:
    ordered = sorted(values)
    p95 = ordered[max(0, round(0.95 * len(ordered)) - 1)]
    print(
        f"{name}: n={len(values)} median {statistics.median(ordered):.3f} s, p95 {p95:.3f} s, "
        f"worst {ordered[-1]:.3f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.figures", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="figures-") as place:
        os.environ.update(
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
            FAULTS_MARKS=f"{place}/marks",
            FAULTS_RELEASE=f"{place}/release",
        )
        import django

        django.setup()
        from django.contrib.auth import get_user_model
        from django.contrib.auth.models import Permission
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        boss = get_user_model().objects.create_user("boss")
        boss.user_permissions.add(Permission.objects.get(codename="decide_approval"))
        stage = Stage(Path(place))
        try:
            stage.worker()
            stage.worker()
            measure(stage, boss, rounds)
        finally:
            for process in stage.workers:
                process.kill()
    return 0


def measure(stage: Stage, boss: Any, rounds: int) -> None:
    def end_politely(process: SiteProcess) -> None:
        process.process.terminate()

    many = range(rounds)
    tell("decision to start of the gated tool", [from_decision_to_start(stage, boss) for _ in many])
    tell("stop to the end of a run whose tool hangs", [from_stop_to_end(stage) for _ in many])
    tell(
        "SIGKILL of a worker to its run's going on",
        [until_taken_up(stage, "slow", "slow", SiteProcess.kill) for _ in many],
    )
    tell(
        "SIGTERM of a worker to its run's going on (a model call)",
        [until_taken_up(stage, "model", "model", end_politely) for _ in many],
    )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
