"""Servers that the test starts, over stdio and over HTTP, and agents that use their tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import call
from tests.services import free_port
from tests.tools.conftest import _by_hand, decide, drive, look  # noqa: F401
from tests.waiting import wait_until

SERVER = Path(__file__).parent / "server.py"
FREE = {"approval": False, "effect": "repeatable"}


def adds(ident="call_1"):
    return call("habits__add", ident, a=1, b=2)


class Site:
    """One server's folder, and sources that reach it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.sources, self.process, self.port = [], None, 0

    def source(self, **options):
        from agentruntime.mcp import mcp_tools

        if self.kind == "stdio":
            options["command"] = [sys.executable, str(SERVER), str(self.folder)]
        else:
            options["url"] = f"http://127.0.0.1:{self.port}/mcp"
        made = mcp_tools("habits", **{"connect_timeout": 15, **options})
        self.sources.append(made)
        return made

    def begin(self) -> None:
        """Start the HTTP server; one over stdio is started by whoever wants it."""
        if self.kind == "stdio":
            return
        if self.process is not None:  # it died
            self.process.communicate()
        self.port = self.port or free_port()
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), str(self.folder), str(self.port)],
            stdin=subprocess.PIPE,  # it ends when this process does, in whatever way
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, 30, lambda: "the server answers")

    def _answers(self) -> bool:
        import socket

        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self) -> None:
        for one in self.sources:
            one.close()
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().split() if file.exists() else []

    def behave(self, habits: str) -> None:
        (self.folder / "habits").write_text(habits)


@pytest.fixture(params=["stdio", "http"])
def site(request, tmp_path):
    made = Site(tmp_path, request.param)
    try:
        made.begin()
        yield made
    finally:
        made.end()
