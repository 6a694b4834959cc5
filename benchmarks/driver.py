"""Runs benches: fresh databases, fresh processes, and the server's counts around each."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.benches import BENCHES, Bench
from benchmarks.contenders import CONTENDERS, Entry
from benchmarks.server import Server

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
QUICKLY_VERIFIED = ("many", "tools")
SETTLE_S = 0.15  # after a connection's end, until the server has its counts


class ChildFailed(Exception):
    """A child ended without a result; the text is the end of its error output."""


class Child:
    """One process of `benchmarks.child`."""

    def __init__(self, python: str, arguments: list[str]) -> None:
        self.exec_at = time.perf_counter()
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.child", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, *words: str) -> tuple[str, Json]:
        """Read to the next line that begins with one of the words; returns it and its JSON."""
        assert self._process.stdout
        assert self._process.stderr
        for line in self._process.stdout:
            word, _, value = line.partition(" ")
            if word in words:
                return word, json.loads(value)
        raise ChildFailed(self._process.stderr.read()[-2000:])

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> Json:
        """Wait for its result and its end."""
        _, result = self.until("RESULT")
        self._process.wait()
        return result

    def kill(self) -> None:
        """End it if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Driver:
    """Benches of contenders on one server.

    `peers_python` is the peers' interpreter and `data` the directory of the retail data, if any.
    """

    def __init__(
        self,
        server: Server,
        redis_url: str = "",
        peers_python: str = "",
        quick: bool = False,
        data: Path | None = None,
    ) -> None:
        self.server = server
        self.quick = quick
        self._redis_url = redis_url
        self._peers_python = peers_python
        self._data = data
        self._templates: dict[str, str] = {}

    def run(self, name: str, bench_name: str) -> Json:
        """One bench of one contender; the result that `metrics.numbers_of` reads."""
        bench, entry = BENCHES[bench_name], CONTENDERS[name]
        if bench.method == "import":
            return self._import(entry)
        if bench.method == "retail":
            return self._retail()
        if bench.method == "faults":
            return self._faults(bench.sizes(self.quick)["rounds"])
        database = f"bench_{name}"
        dsn = self.server.create(database, self._template(name))
        if self._redis_url:
            self._redis().flushdb()
        try:
            if bench.method == "cold":
                result = self._cold(name, bench, dsn)
            else:
                result = self._measured(name, bench, database, dsn)
            if entry.kind == "project" and (not self.quick or bench.method in QUICKLY_VERIFIED):
                self._verify(name, dsn)
            return result
        finally:
            self.server.drop(database)

    def close(self) -> None:
        """Drop what was made."""
        for template in self._templates.values():
            self.server.drop(template)

    def versions(self, name: str) -> dict[str, str]:
        """The versions of a contender's distributions in its interpreter."""
        code = (
            "import importlib.metadata as m, json; "
            f"print(json.dumps({{d: m.version(d) for d in {CONTENDERS[name].distributions!r}}}))"
        )
        done = subprocess.run([self._python(name), "-c", code], capture_output=True, text=True)
        return json.loads(done.stdout or "{}")

    # How.

    def _python(self, name: str) -> str:
        return self._peers_python if CONTENDERS[name].kind == "peer" else sys.executable

    def _redis(self) -> Any:
        import redis  # only where there is a server for it

        return redis.Redis.from_url(self._redis_url)

    def _redis_bytes(self) -> int:
        return self._redis().info("memory")["used_memory"] if self._redis_url else 0

    def _child(self, name: str, method: str, sizes: Json, dsn: str, process: int = 0) -> Child:
        arguments = [
            name,
            method,
            "--sizes",
            json.dumps(sizes),
            "--dsn",
            dsn,
            "--redis",
            self._redis_url,
            "--process",
            str(process),
        ]
        return Child(self._python(name), arguments)

    def _template(self, name: str) -> str:
        """A database that has the contender's schema, to copy from. The floors share one."""
        schema = "floor" if CONTENDERS[name].kind == "floor" else name
        if schema not in self._templates:
            database = f"bench_{schema}_template"
            self._child(name, "migrate", {}, self.server.create(database)).result()
            self._templates[schema] = database
        return self._templates[schema]

    def _verify(self, name: str, dsn: str) -> None:
        """A figure whose history is not sound does not count."""
        violations = self._child(name, "verify", {}, dsn).result()["violations"]
        if violations:
            raise ChildFailed(f"{len(violations)} violations: {'; '.join(violations[:5])}")

    def _measured(self, name: str, bench: Bench, database: str, dsn: str) -> Json:
        sizes = bench.sizes(self.quick)
        before = self.server.counts(database)
        children = [
            self._child(name, bench.method, sizes, dsn, number) for number in range(bench.processes)
        ]
        try:
            for child in children:
                child.until("READY")
            if bench.method == "grow":
                return self._growing(children[0], database)
            for child in children:
                child.go()
            parts = [child.result() for child in children]
        finally:
            for child in children:
                child.kill()
        time.sleep(SETTLE_S)
        counts = self.server.counts(database).since(before)
        return {"processes": parts, **parts[0], **counts}

    def _growing(self, child: Child, database: str) -> Json:
        """Read the sizes at each mark; all are differences to the start."""
        wal, redis = self.server.wal_bytes(), self._redis_bytes()
        size, marks = self.server.size(database), []
        child.go()
        while True:
            word, value = child.until("MARK", "RESULT")
            if word == "RESULT":
                return {**value, "marks": marks}
            marks.append(
                {
                    "mark": value["mark"],
                    "wal_bytes": self.server.wal_bytes() - wal,
                    "size": self.server.size(database) - size,
                    "redis_bytes": self._redis_bytes() - redis,
                }
            )
            child.go()

    def _cold(self, name: str, bench: Bench, dsn: str) -> Json:
        sizes = bench.sizes(self.quick)
        self._child(name, "pause", sizes, dsn).result()
        child = self._child(name, "cold", sizes, dsn)
        return {"exec_at": child.exec_at, **child.result()}

    def _import(self, entry: Entry) -> Json:
        python = self._peers_python if entry.kind == "peer" else sys.executable
        bare = timed([python, "-c", "pass"])
        tail = "\nimport resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        full = timed([python, "-c", entry.imports + tail])
        return {
            "wall": full["wall"] - bare["wall"],
            "cpu": full["cpu"] - bare["cpu"],
            "rss_kib": int(full["output"].split()[-1]),
        }

    def _retail(self) -> Json:
        """The retail tasks through worker processes, in a process of their own."""
        command = [sys.executable, "-m", "benchmarks.retail", "--data", str(self._data)]
        command += ["--database", self.server.dsn("postgres"), "--workers", "2", "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return last_line(done)

    def _faults(self, rounds: int) -> Json:
        """Workers that are taken away, decisions and stops, in processes of their own."""
        command = [sys.executable, "-m", "benchmarks.faults", "--rounds", str(rounds), "--json"]
        command += ["--database", self.server.dsn("postgres")]
        return last_line(subprocess.run(command, cwd=ROOT, capture_output=True, text=True))


def last_line(done: subprocess.CompletedProcess[str]) -> Json:
    """The JSON that a command printed last."""
    lines = done.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise ChildFailed(done.stderr[-2000:])
    return json.loads(lines[-1])


def timed(command: list[str]) -> Json:
    """Run a command to its end: seconds, CPU seconds, output."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    cpu, begun = used(), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ChildFailed(done.stderr[-2000:])
    return {"wall": time.perf_counter() - begun, "cpu": used() - cpu, "output": done.stdout}
