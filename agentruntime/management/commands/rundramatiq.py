"""`manage.py rundramatiq`: the workers."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Runs worker processes. Without a broker, one process that finds its work by the sweep."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--processes", "-p", type=above_zero, default=2, help="worker processes (2)"
        )
        parser.add_argument(
            "--threads",
            "-t",
            type=above_zero,
            default=64,
            help="threads of each (64): runs that may wait at once",
        )

    def handle(self, *args: Any, processes: int, threads: int, **options: Any) -> None:
        if not getattr(settings, "REDIS_URL", ""):
            processes = 1
        command = [
            sys.executable, "-m", "dramatiq", "agentruntime.worker",
            "--processes", str(processes), "--threads", str(threads),
            "--worker-shutdown-timeout", "30000",
        ]  # fmt: skip
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE}
        # A process takes as many messages as it has places, the others are for other processes.
        environment.setdefault("dramatiq_queue_prefetch", str(threads))
        environment.setdefault("dramatiq_worker_timeout", "500")
        paths = [path for path in (os.getcwd(), environment.get("PYTHONPATH", "")) if path]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        self.stdout.flush()
        os.execvpe(sys.executable, command, environment)


def above_zero(text: str) -> int:
    """Return the number that `text` is; argparse ends with a sentence and 2 for anything else."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError("a whole number above zero was expected")
    return int(text)
