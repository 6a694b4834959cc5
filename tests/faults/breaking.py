"""What breaks in the chaos hour, in which order, and how long it takes until work goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEASE_AND_MORE = 8.0


class Workers:
    """The worker processes; one of them at a time is a victim."""

    def __init__(self, number: int, environment: dict[str, str], folder: Path) -> None:
        self._environment, self._folder, self._logs = environment, folder, 0
        self._stopped: list[tuple[float, Any]] = []
        self.all = [self._start() for _ in range(number)]

    def _start(self) -> Any:
        from benchmarks.processes import start_workers

        self._logs += 1
        log = self._folder / f"worker-{self._logs}.log"
        return start_workers(1, 8, self._environment, log)

    def victim(self, rng: random.Random) -> Any:
        """One of those that are up, or None; another is always left."""
        from benchmarks.processes import WORKER_READY

        stopped = [process for _, process in self._stopped]
        up = [one for one in self.all if WORKER_READY in one.output() and one not in stopped]
        return rng.choice(up) if len(up) > 1 else None

    def replace(self, process: Any) -> None:
        """Start another in its place."""
        self.all.remove(process)
        self.all.append(self._start())

    def stop_for_a_while(self, process: Any) -> None:
        """SIGSTOP, and SIGCONT when its lease is over."""
        _signal(process, signal.SIGSTOP)
        self._stopped.append((time.monotonic() + LEASE_AND_MORE, process))

    def wake(self, everybody: bool = False) -> None:
        """Let those go on whose time is over."""
        for until, process in list(self._stopped):
            if everybody or time.monotonic() >= until:
                _signal(process, signal.SIGCONT)
                self._stopped.remove((until, process))

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self._folder.glob("worker-*"))


def _signal(process: Any, number: signal.Signals) -> None:
    for pid in process.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Faults:
    """What breaks, when, and how long the runs that it hit took to go on."""

    def __init__(self, workers: Workers, rng: random.Random, postgres: Any, redis: str) -> None:
        self._workers, self._rng, self._postgres, self._redis = workers, rng, postgres, redis
        self.fired: Counter[str] = Counter()
        self.hit: list[tuple[str, float, dict[Any, int]]] = []
        self.waited_for: list[tuple[str, float, int]] = []
        self.recovered: dict[str, list[float]] = {}
        self.next = time.monotonic() + rng.uniform(3, 8)
        self._kinds: dict[str, Callable[[], dict[Any, int] | None]] = {
            "SIGKILL": self._kill,
            "SIGSTOP": self._stop,
            "SIGTERM": self._term,
        }
        if postgres is not None:
            self._kinds |= {
                "PostgreSQL fast": lambda: self._restart("fast"),
                "PostgreSQL immediate": lambda: self._restart("immediate"),
                "sessions cut": self._cut,
            }
        if redis:
            self._kinds |= {"Redis flushed": self._flush, "Redis clients cut": self._kick}
        self._deck: list[str] = []

    @property
    def missing(self) -> list[str]:
        """The kinds that have not fired."""
        return [name for name in self._kinds if not self.fired[name]]

    def maybe(self) -> None:
        """Break something, if it is time: each kind once, in any order, and then again."""
        if time.monotonic() < self.next:
            return
        if not self._deck:
            self._deck = self._rng.sample(list(self._kinds), len(self._kinds))
        name, before = self._deck[-1], _commits()
        affected = self._kinds[name]()
        if affected is None:  # no worker can be spared just now
            self.next = time.monotonic() + 1
            return
        self._deck.pop()
        self.fired[name] += 1
        told = f", {len(affected)} runs hit" if name.startswith("SIG") else ""
        print(f"{time.strftime('%H:%M:%S')} {name}{told}", flush=True)
        if affected:
            self.hit.append((name, time.monotonic(), affected))
        if not name.startswith("SIG"):
            self.waited_for.append((name, time.monotonic(), before))
        self.next = time.monotonic() + self._rng.uniform(5, 40)

    def look(self) -> None:
        """See which of the runs that were hit go on, and whether steps are committed again, and
        note how long that took.
        """
        from agentruntime.models import Run

        commits = _commits() if self.waited_for else 0
        for name, since, before in self.waited_for:
            if commits > before:
                self.recovered.setdefault(name, []).append(time.monotonic() - since)
        self.waited_for = [one for one in self.waited_for if commits <= one[2]]
        for name, since, tokens in self.hit:
            rows = Run.objects.filter(pk__in=tokens).values_list("pk", "fencing_token", "status")
            for pk, token, status in rows:
                if token > tokens[pk] or status != "running":
                    del tokens[pk]
                    self.recovered.setdefault(name, []).append(time.monotonic() - since)
        self.hit = [one for one in self.hit if one[2]]

    def _held_by(self, process: Any) -> dict[Any, int]:
        from agentruntime.models import Run

        pids = set(process.pids())
        rows = Run.objects.filter(status="running").values_list(
            "pk", "fencing_token", "lease_owner"
        )
        owner = {pk: int(owned.partition("/")[0].rpartition(":")[2]) for pk, _, owned in rows}
        return {pk: token for pk, token, _ in rows if owner[pk] in pids}

    def _kill(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        process.kill()
        self._workers.replace(process)
        return held

    def _stop(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        self._workers.stop_for_a_while(process)
        return held

    def _term(self) -> dict[Any, int] | None:
        process = self._workers.victim(self._rng)
        if process is None:
            return None
        held = self._held_by(process)
        os.kill(process.pids()[0], signal.SIGTERM)
        self._workers.replace(process)
        return held

    def _restart(self, mode: str) -> dict[Any, int]:
        seconds = self._postgres.restart(mode, away=self._rng.choice((0, 0, 3)))
        print(f"         PostgreSQL was away for {seconds:.1f} s", flush=True)
        return {}

    def _cut(self) -> dict[Any, int]:
        self._postgres.cut_connections()
        return {}

    def _flush(self) -> dict[Any, int]:
        from tests.faults.servers import flush_redis

        flush_redis(self._redis)
        return {}

    def _kick(self) -> dict[Any, int]:
        from tests.faults.servers import kick_redis_clients

        kick_redis_clients(self._redis)
        return {}


def _commits() -> int:
    """The number of the newest checkpoint of all."""
    from agentruntime.models import Checkpoint

    newest = Checkpoint.objects.order_by("-id").values_list("id", flat=True).first()
    return newest or 0
