"""What a worker process loads: Django, the apps, and with them the broker and its actor."""

import ctypes
import multiprocessing
import os
import signal
import sys

import django

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel send SIGTERM when the main process dies, however it does (Linux only)."""
    parent = multiprocessing.parent_process()
    if not sys.platform.startswith("linux") or parent is None:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent.pid:  # it died before it could be watched
        os.kill(os.getpid(), signal.SIGTERM)


end_with_parent()
django.setup()

from agentruntime.actors import broker  # noqa: E402 - the apps must be ready first

__all__ = ["broker"]
