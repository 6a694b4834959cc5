"""A TCP proxy before PostgreSQL that knows its protocol: faults at a chosen statement.

An exchange is what a client sends up to a Query or Sync, and the server's answers up to
ReadyForQuery. `plan(text, number)` is asked before each exchange that executes something, with its
SQL and its number from 1 over all connections; what it returns happens:

- `before`: the connection is cut, the server never sees the statement.
- `after`: the server carries it out, the connection is cut before its answer arrives. If it was a
  COMMIT, or a statement that is its own transaction, it has landed and nobody knows.
- five characters: the server raises an error of this SQLSTATE instead.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
Plan = Callable[[str, int], str | None]


class Cut(Exception):
    """The plan, or one of the two sides, has ended the connection."""


class Proxy:
    """Listens on `port`. `plan` may be changed at any time; `count` is of exchanges so far."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.count = 0
        self.plan: Plan = lambda text, number: None
        threading.Thread(target=self._accept, daemon=True).start()

    def restart(self, plan: Plan) -> None:
        """Count from 1 again, and follow another plan."""
        with self._lock:
            self.count, self.plan = 0, plan

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def decide(self, text: str) -> str | None:
        with self._lock:
            self.count += 1
            return self.plan(text, self.count)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, Cut), client:
            server = socket.create_connection(self._target)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with server:
                _Line(self, client, server).work()


class _Line:
    """One connection of a client, and the one that it has to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._prepared: dict[bytes, str] = {}

    def work(self) -> None:
        self._start()
        while True:
            sent, text = self._next_exchange()
            fault = self._proxy.decide(text) if text is not None else None
            if fault == "before":
                raise Cut
            if fault is not None and fault != "after":
                raising = f"DO $$BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{fault}'; END$$"
                sent = _message(b"Q", raising.encode() + b"\0")
            self._server.sendall(sent)
            self._answer(tell=fault != "after")
            if fault == "after":
                raise Cut

    def _start(self) -> None:
        while True:
            size, code = struct.unpack("!ii", _read(self._client, 8))
            first = struct.pack("!ii", size, code) + _read(self._client, size - 8)
            if code in (SSL_REQUEST, GSS_REQUEST):
                self._client.sendall(b"N")
                continue
            self._server.sendall(first)
            if code == CANCEL_REQUEST:
                raise Cut
            return self._answer()

    def _next_exchange(self) -> tuple[bytes, str | None]:
        """What the client sends next, and the SQL that it executes, if it executes any."""
        sent, text, executes = b"", "", False
        while True:
            self._wait_for_client()
            kind, body = _next_message(self._client)
            sent += _message(kind, body)
            if kind == b"P":
                name, query = body.split(b"\0", 2)[:2]
                text = self._prepared[name] = query.decode(errors="replace")
            elif kind == b"B":
                text = self._prepared.get(body.split(b"\0", 2)[1], "")
            elif kind == b"E":
                executes = True
            elif kind == b"Q":
                return sent, body.rstrip(b"\0").decode(errors="replace")
            elif kind == b"S":
                return sent, text if executes else None
            elif kind == b"X":
                raise Cut

    def _wait_for_client(self) -> None:
        while True:
            ready, _, _ = select.select([self._client, self._server], [], [])
            if self._client in ready:
                return
            self._client.sendall(_some(self._server))  # it ends the session, or tells a setting

    def _answer(self, tell: bool = True) -> None:
        while True:
            kind, body = _next_message(self._server)
            if tell:
                self._client.sendall(_message(kind, body))
            if kind == b"Z":
                return


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _next_message(line: socket.socket) -> tuple[bytes, bytes]:
    head = _read(line, 5)
    return head[:1], _read(line, struct.unpack("!i", head[1:])[0] - 4)


def _read(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        found += _some(line, size - len(found))
    return bytes(found)


def _some(line: socket.socket, size: int = 65536) -> bytes:
    found = line.recv(size)
    if not found:
        raise Cut
    return found


@contextmanager
def through_a_proxy() -> Iterator[Proxy]:
    """Let all connections of this process go through a proxy for the length of the block."""
    from django.db import connection

    address = connection.settings_dict
    before = {name: address[name] for name in ("HOST", "PORT")}
    proxy = Proxy(before["HOST"], int(before["PORT"] or 5432))
    try:
        _go_to(HOST="127.0.0.1", PORT=str(proxy.port))
        yield proxy
    finally:
        proxy.restart(lambda text, number: None)
        _go_to(**before)
        proxy.close()


def _go_to(**address: str) -> None:
    from django.db import connection

    connection.close()
    connection.close_pool()
    connection.settings_dict.update(address)
