"""A server over HTTP that answers calls as broken gateways and servers do: `RudeServer(answer)`.

`answer(request)` is asked for each `tools/call` and returns the status, the content type and the
body. `sessions=True` hands out a session; `forget()` is a restart that knows none of them any more.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = tuple[int, str, bytes]
JSON = "application/json"
TOOL = {"name": "pay", "description": "Pay", "inputSchema": {"type": "object"}}


class RudeServer:
    def __init__(self, answer: Callable[[dict[str, Any]], Said]) -> None:
        self.answer = answer
        self.calls = 0
        self.sessions: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.rude = self  # type: ignore[attr-defined]
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/mcp"

    def forget(self) -> None:
        self.sessions.clear()

    def __enter__(self) -> RudeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def result(request: dict[str, Any], value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._send(405, JSON, b"{}")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        rude: RudeServer = self.server.rude  # type: ignore[attr-defined]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, begins = request.get("method"), request.get("method") == "initialize"
        if not begins and self.headers.get("Mcp-Session-Id") not in rude.sessions:
            return self._send(404, "text/plain", b"no such session")
        if begins:
            version = request["params"]["protocolVersion"]
            about = {"protocolVersion": version, "capabilities": {"tools": {}}}
            about["serverInfo"] = {"name": "rude", "version": "1"}
            rude.sessions.add(ident := uuid.uuid4().hex)
            return self._send(200, JSON, result(request, about), **{"Mcp-Session-Id": ident})
        if method == "tools/list":
            return self._send(200, JSON, result(request, {"tools": [TOOL]}))
        if method == "tools/call":
            rude.calls += 1
            return self._send(*rude.answer(request))
        return self._send(202, JSON, b"")

    def _send(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
