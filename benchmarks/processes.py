"""Processes of the site beside the one that measures: workers, a web server, and what they use."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKER_READY = "Worker process is ready"
WEB_READY = "Uvicorn running"
TICKS = os.sysconf("SC_CLK_TCK")


class SiteProcess:
    """One command in a process group of its own, its output in a file."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", *command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, ready: str, times: int = 1) -> SiteProcess:
        """Return when its output holds this text so many times. Raises if it ends before."""
        until = time.monotonic() + 60
        while self.output().count(ready) < times:
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"The process did not come up:\n{self.output()[-3000:]}")
            time.sleep(0.02)
        return self

    def output(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """End the whole group at once: kill -9."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> None:
        """Tell the main process to end, as a supervisor does: SIGTERM."""
        self._process.terminate()

    def pids(self) -> list[int]:
        """The process and its descendants."""
        found, parents = [self._process.pid], parents_of_all()
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_s(self) -> float:
        """CPU seconds that the processes have used."""
        return sum(cpu_s(pid) for pid in self.pids())

    def peak_kib(self) -> int:
        """The most memory that one of the processes has held, KiB."""
        return max(peak_kib(pid) for pid in self.pids())


def start_workers(
    processes: int, threads: int, environment: dict[str, str], log: Path
) -> SiteProcess:
    """Worker processes of the site, as `manage.py rundramatiq` starts them; not up yet."""
    sizes = ["--processes", str(processes), "--threads", str(threads)]
    return SiteProcess(["manage.py", "rundramatiq", *sizes], environment, log)


def start_web(port: int, environment: dict[str, str], log: Path) -> SiteProcess:
    """A web server of the site on a port of this machine; not up yet."""
    command = ["-m", "uvicorn", "config.asgi:application", "--port", str(port), "--no-access-log"]
    return SiteProcess(command, environment, log)


def parents_of_all() -> dict[int, int]:
    """The parent's id of every process, by id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = stat_of(int(entry.name))
            if fields:
                found[int(entry.name)] = int(fields[1])
    return found


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of one process."""
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def peak_kib(pid: int) -> int:
    """The most memory that a process has held, KiB."""
    return memory_kib(pid, "VmHWM")


def rss_kib(pid: int) -> int:
    """The memory that a process holds now, KiB."""
    return memory_kib(pid, "VmRSS")


def memory_kib(pid: int, name: str) -> int:
    """A figure of /proc/PID/status in KiB; 0 where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(x.split()[1]) for x in text.splitlines() if x.startswith(name)), 0)
