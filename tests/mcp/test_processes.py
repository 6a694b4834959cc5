"""Servers that are started end with whoever started them, also those that do not care to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentruntime.exceptions import McpUnreachable
from agentruntime.mcp.connection import Connection, close_connections
from agentruntime.mcp.transports import stdio
from tests.mcp.conftest import SERVER
from tests.processes import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.database("sqlite"), pytest.mark.slow]

USES_A_SERVER = """
import sys, time
import django
django.setup()
from agentruntime.mcp.connection import Connection
from agentruntime.mcp.transports import stdio
made = Connection("habits", stdio([sys.executable, *sys.argv[1:]], None), 30)
made.begin(made.list_tools()).result()
print("ready", flush=True)
sys.stdin.read()
"""


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and that nobody asked about has no memory any more.
    return Path(f"/proc/{pid}/statm").read_text().split()[0] != "0"


@pytest.fixture
def user(tmp_path):
    """Starts a process that uses a server with habits; gives it and the server's pid."""
    started = []

    def start(habits):
        (tmp_path / "habits").write_text(habits)
        process = subprocess.Popen(
            [sys.executable, "-c", USES_A_SERVER, str(SERVER), str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process, int((tmp_path / "pid").read_text())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("habits", ["", "stays", "stays-for-good"])
def test_a_process_that_ends_takes_its_servers_along(user, habits):
    process, server = user(habits)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert not is_there(server)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is the kernel's word")
@pytest.mark.parametrize("habits", ["", "stays"])
def test_a_killed_process_takes_its_servers_along(user, habits):
    process, server = user(habits)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not is_there(server), 10, "the server's end")


def test_a_server_that_never_says_a_word_is_given_up_and_ended(tmp_path):
    file = tmp_path / "pid"
    code = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    silent = Connection("silent", stdio([sys.executable, "-c", code], None), 2)
    try:
        with pytest.raises(McpUnreachable):
            silent.begin(silent.list_tools()).result(20)
        wait_until(lambda: not is_there(int(file.read_text())), 10, "the server's end")
    finally:
        close_connections(silent)


def test_a_program_that_is_not_there_is_named():
    missing = Connection("missing", stdio(["/nonexistent/server"], None), 5)
    with pytest.raises(McpUnreachable, match="there is no program '/nonexistent/server'"):
        missing.begin(missing.list_tools()).result(20)
