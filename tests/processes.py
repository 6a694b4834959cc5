"""Processes of this site, started on the database and the Redis of the running test."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
READY = "Worker process is ready for action."


class SiteProcess:
    """One `manage.py` command in a process group of its own, its output in a file."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(ROOT / "manage.py"), *command],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, times: int = 1, timeout: float = 30) -> None:
        """Wait until `text` stands `times` times in the output; a process that ended fails it."""

        def seen() -> bool:
            found = self.output().count(text) >= times
            if not found and self.process.poll() is not None:
                raise AssertionError(f"It ended before it said {text!r}:\n{self.output()}")
            return found

        wait_until(seen, timeout, lambda: f"{text!r} in:\n{self.output()}")

    def wait(self, timeout: float = 30) -> int:
        """Wait for the end; gives the exit code."""
        return self.process.wait(timeout)

    def kill(self) -> None:
        """kill -9 for the whole group: what a lost machine looks like."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout: float = 10) -> None:
        """Ask it to end, and kill what has not ended in time."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
