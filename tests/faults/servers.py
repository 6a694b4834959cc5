"""Servers of this machine that are ended and started again, found by their addresses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from tests.services import answers_sql, die_with_parent


@dataclass
class Postgres:
    """The PostgreSQL behind a URL; `restart` does what `pg_ctl restart -m MODE` does."""

    url: str

    def __post_init__(self) -> None:
        with psycopg.connect(self.url) as line:
            place = line.execute("SHOW data_directory").fetchone()[0]
        self._pid_file = Path(place) / "postmaster.pid"
        pid = self._pid()
        self._command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        status = Path(f"/proc/{pid}")
        self._who = {}
        if os.geteuid() == 0:
            owner = status.stat()
            self._who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}

    def _pid(self) -> int:
        return int(self._pid_file.read_text().split()[0])

    def restart(self, mode: str, away: float = 0.0) -> float:
        """End the server (`fast` or `immediate`), start it again; give the seconds it was away."""
        begun = time.monotonic()
        pid = self._pid()
        os.kill(pid, signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        while _is_there(pid):
            time.sleep(0.02)
        time.sleep(away)
        subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGINT),
            **self._who,
        )
        while not answers_sql(self.url):
            time.sleep(0.05)
        return time.monotonic() - begun

    def stop(self) -> None:
        """End it for good: whoever started it first knows nothing of its successor."""
        with contextlib.suppress(OSError):
            os.kill(self._pid(), signal.SIGINT)

    def cut_connections(self) -> int:
        """Terminate all sessions but this one; give their number."""
        with psycopg.connect(self.url, autocommit=True) as line:
            rows = line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            return len(rows.fetchall())


def _is_there(pid: int) -> bool:
    try:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        os.kill(pid, 0)
    except OSError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def flush_redis(url: str) -> None:
    """Empty a Redis, all of its databases: what a restart without a disk leaves."""
    with redis.Redis.from_url(url) as line:
        line.flushall()


def kick_redis_clients(url: str) -> None:
    """Cut all connections of a Redis."""
    with redis.Redis.from_url(url) as line:
        line.client_kill_filter(_type="normal", skipme=True)


def at(url: str, database: str) -> str:
    """The same server's URL for another database."""
    return urlsplit(url)._replace(path=f"/{database}").geturl()
