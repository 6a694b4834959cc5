"""The bank: a process of its own that keeps books in an append-only, fsynced file of JSON lines.

It never reads the runtime's database. Requests and answers are lines of JSON on a socket:
`{key, op, amount, mode}`. Modes: `idempotent` (a key is applied once, an equal repeat replays the
answer, other parameters are refused), `plain` (applies everything), `lost` (applies, then closes
the connection without an answer), `error` (applies, then answers 500), and the request
`{op: "by-key", key}` asks what became of a key.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

from agentruntime.crash import crash_point

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "BANK_ADDRESS"


# --- the process ------------------------------------------------------------------------------


class Books:
    """The file, and what it says of each key."""

    def __init__(self, file: Path) -> None:
        self.file, self._lock = file, threading.Lock()
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}
        self._seq = 0

    def write(self, phase: str, request: dict[str, Any]) -> None:
        self._seq += 1
        line = {"seq": self._seq, "t": time.time(), "phase": phase, **request}
        with self.file.open("ab") as out:
            out.write(json.dumps(line).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())

    def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            key, mode = request["key"], request.get("mode", "idempotent")
            if request["op"] == "by-key":
                known = self._answers.get(key)
                return {"status": 200, "known": known is not None, "answer": known and known[1]}
            self.write("received", request)
            parameters = hashlib.sha256(
                json.dumps([request["op"], request.get("amount")]).encode()
            ).hexdigest()
            if mode != "plain" and key in self._answers:
                before, answer = self._answers[key]
                self.write("replayed" if before == parameters else "refused", request)
                return answer if before == parameters else {"status": 400}
            answer = {"status": 200, "receipt": f"receipt-{self._seq}"}
            self._answers[key] = (parameters, answer)
            self.write("applied", request)
            return answer


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def serve(port: int, file: Path) -> None:
    books = Books(file)

    class Desk(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self._next():
                request = json.loads(line)
                answer = books.carry_out(request)
                if request.get("mode") == "lost":
                    return
                if request.get("mode") == "error":
                    answer = {"status": 500}
                with suppress(OSError):  # who asked may be gone
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        def _next(self) -> bytes:
            with suppress(OSError):
                return self.rfile.readline()
            return b""

    with Server(("127.0.0.1", port), Desk) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


# --- its customers ----------------------------------------------------------------------------


class BankError(Exception):
    """The bank answered with an error."""


def request(key: str, op: str, amount: int = 0, mode: str = "idempotent") -> dict[str, Any]:
    """Ask the bank for something. P8: the request is sent, P9: it was carried out."""
    host, _, port = os.environ[ADDRESS].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(
            json.dumps({"key": key, "op": op, "amount": amount, "mode": mode}).encode() + b"\n"
        )
        crash_point("P8")
        select([line], [], [], 10)
        crash_point("P9")
        said = line.makefile().readline()
    if not said:
        raise ConnectionResetError("the bank hung up")
    answer: dict[str, Any] = json.loads(said)
    if answer["status"] != 200:
        raise BankError(f"the bank answered {answer['status']}")
    return answer


def was_carried_out(key: str) -> dict[str, Any] | None:
    """Ask the bank what became of a key."""
    answer = request(key, "by-key")
    return answer["answer"] if answer["known"] else None


# --- for tests --------------------------------------------------------------------------------


class Bank:
    """The running bank: where it is, and its books."""

    def __init__(self, address: str, file: Path) -> None:
        self.address, self.file = address, file

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def applied(self) -> Counter[str]:
        """How often each key was applied."""
        return Counter(line["key"] for line in self.lines() if line["phase"] == "applied")


@contextmanager
def open_bank(file: Path) -> Any:
    """Run a bank for the length of the block, its address in this process's environment."""
    file.touch()
    command = [sys.executable, "-m", "tests.faults.bank", "--file", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    address = f"127.0.0.1:{process.stdout.readline().strip()}"
    before = os.environ.get(ADDRESS)
    os.environ[ADDRESS] = address
    try:
        yield Bank(address, file)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.environ.pop(ADDRESS)
        if before is not None:
            os.environ[ADDRESS] = before


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    serve(options.port, options.file)
