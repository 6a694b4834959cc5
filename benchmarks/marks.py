"""When user code ran: kept in the process, or sent to the one that measures.

Times are `perf_counter`, on Linux one clock for all processes of the machine. With BENCH_MARKS, the
path of a datagram socket, a mark goes there instead; that costs about ten microseconds. With
"none" nothing is marked.
"""

from __future__ import annotations

import os
import socket
import threading
import time

ADDRESS = os.environ.get("BENCH_MARKS", "")
_marks: dict[str, list[float]] = {}
_socket: socket.socket | None = None


def mark(name: str) -> None:
    """Note that the work of `name` has just begun."""
    global _socket
    if ADDRESS == "none":
        return
    now = time.perf_counter()
    if not ADDRESS:
        _marks.setdefault(name, []).append(now)
        return
    if _socket is None:
        _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    _socket.sendto(f"{name} {now!r}".encode(), ADDRESS)


def taken(name: str) -> list[float]:
    """The marks of `name` in this process, in order; they are forgotten."""
    return _marks.pop(name, [])


class Receiver:
    """The other end of BENCH_MARKS: collects the marks of other processes."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._marks: dict[str, float] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._forever, daemon=True).start()

    def _forever(self) -> None:
        while True:
            name, _, moment = self._socket.recv(300).decode().rpartition(" ")
            with self._changed:
                self._marks[name] = float(moment)
                self._changed.notify_all()

    def wait_for(self, name: str, seconds: float = 30.0) -> float:
        """The newest mark of `name`, as soon as there is one."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._marks, seconds):
                raise TimeoutError(f"{name} did not begin within {seconds} s")
            return self._marks.pop(name)
