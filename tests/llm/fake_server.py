"""A provider that is not there: real HTTP on this machine, OpenAI's two protocols and Anthropic's.

`FakeProvider(script)` answers each request with what `script(body)` returns (see `replies`). A
script decides from the request it is given, never from a counter of its own; failures that pass are
queued with `fail`. Requests that a provider would refuse get a 400, as they would there.

As a process, for other processes to use, with a script or with the mind of a scripted model:
`python -m tests.llm.fake_server --model agentruntime.demo.scripted:support_model --port 8099`
prints the address to give as `OPENAI_BASE_URL`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.llm import anthropic_protocol, openai_protocol, responses_protocol
from tests.llm.payloads import InvalidPayload, check_payload
from tests.llm.replies import Answer, Cut, Failure, Halted, Raw, Reply, Silence, error_body
from tests.llm.scripts import Script, served

PROTOCOLS: dict[str, Any] = {
    "openai": openai_protocol,
    "openai-responses": responses_protocol,
    "anthropic": anthropic_protocol,
}
PATHS = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}


@dataclass(frozen=True)
class Received:
    """One request as it came in."""

    protocol: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def echo(body: dict[str, Any]) -> Reply:
    """Say what the last message said."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else json.dumps(content)
    return Answer(text=f"You said: {text}")


class FakeProvider:
    """The server. `requests` holds what was asked, in order; `connections` counts what was opened.

    `split` bounds the bytes of a piece of a stream, 0 for all at once; `pause` is the time in
    seconds between two pieces; `strict=False` lets any request pass.
    """

    def __init__(
        self,
        script: Script = echo,
        *,
        split: int = 0,
        pause: float = 0.0,
        strict: bool = True,
        port: int = 0,
    ) -> None:
        self.script, self.split, self.pause, self.strict = script, split, pause, strict
        self.requests: list[Received] = []
        self.tokens_counted = 321
        self.connections = 0
        self._failures: deque[Reply] = deque()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """The address without a path: Anthropic's base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai_url(self) -> str:
        """The address to give as `OPENAI_BASE_URL`."""
        return f"{self.url}/v1"

    def base_url(self, protocol: str) -> str:
        return self.url if protocol == "anthropic" else self.openai_url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [one.body for one in self.requests]

    def fail(self, *replies: Reply) -> None:
        """Answer the next requests with these, one each, whatever the script says."""
        self._failures.extend(replies)

    def reply_to(self, received: Received) -> Reply:
        if received.protocol == "openai-responses":
            received = replace(received, body=responses_protocol.as_chat(received.body))
        self.requests.append(received)
        if self._failures:
            return self._failures.popleft()
        if self.strict:
            try:
                check_payload(received.body)
            except InvalidPayload as problem:
                return Failure(400, f"the payload is not valid: {problem}")
        return self.script(received.body)

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A handler that waits for its client, or keeps silent, must not hold up the test's end.
    block_on_close = False
    provider: FakeProvider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else each small piece waits 40 ms for the client's system to say that it has the one before.
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.provider.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        asked = path.removesuffix("/count_tokens").removesuffix("/input_tokens")
        protocol = PATHS.get(asked, "openai")
        received = Received(protocol, self.path, dict(self.headers), body)
        if asked != path:
            self.server.provider.requests.append(received)
            counted = {"input_tokens": self.server.provider.tokens_counted}
            return self._send(200, json.dumps(counted).encode())
        if path not in PATHS:
            return self._send(404, error_body(protocol, Failure(404, f"no such path {path}")))
        self._answer(received, self.server.provider.reply_to(received))

    def _answer(self, received: Received, reply: Reply) -> None:
        if isinstance(reply, Failure):
            self._send(reply.status, error_body(received.protocol, reply), headers=reply.headers)
        elif isinstance(reply, Raw):
            self._send(200, reply.body, reply.content_type)
        elif isinstance(reply, Silence):
            self._keep_silent(received, reply)
        elif received.body.get("stream"):
            self._stream(received, reply)
        else:
            self._whole(received, reply)

    def _send(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _whole(self, received: Received, reply: Answer | Cut | Halted) -> None:
        answer = reply if isinstance(reply, Answer) else reply.answer
        body = PROTOCOLS[received.protocol].whole(answer, received.body)
        if isinstance(reply, Halted):
            reply.go_on.wait(60)
        if not isinstance(reply, Cut):
            return self._send(200, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: int(len(body) * reply.share)])
        self._drop()

    def _stream(self, received: Received, reply: Answer | Cut | Halted) -> None:
        answer = reply if isinstance(reply, Answer) else reply.answer
        body = PROTOCOLS[received.protocol].stream(answer, received.body)
        self._begin_stream()
        if isinstance(reply, Answer):
            self._pieces(body)
            return self._end_stream()
        begun = body[: int(len(body) * reply.share)]
        if isinstance(reply, Halted):
            self._pieces(begun)
            reply.go_on.wait(60)
            self._pieces(body[len(begun) :])
            return self._end_stream()
        if reply.how == "error":
            begun = begun[: begun.rfind(b"\n\n") + 2] + _error_event(received.protocol)
        self._pieces(begun)
        self._drop() if reply.how == "close" else self._end_stream()

    def _keep_silent(self, received: Received, reply: Silence) -> None:
        if reply.answer is not None:
            body = PROTOCOLS[received.protocol].stream(reply.answer, received.body)
            self._begin_stream()
            self._pieces(body[: len(body) // 2])
        time.sleep(reply.seconds)
        self._drop()

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _pieces(self, body: bytes) -> None:
        provider = self.server.provider
        size = provider.split or len(body) or 1
        for start in range(0, len(body), size):
            piece = body[start : start + size]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(provider.pause)

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def _drop(self) -> None:
        """Close the connection at once, as a killed server would."""
        self.close_connection = True
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()


def _error_event(protocol: str) -> bytes:
    error = {"type": "overloaded_error", "message": "too much to do"}
    if protocol == "anthropic":
        return (
            b"event: error\ndata: "
            + json.dumps({"type": "error", "error": error}).encode()
            + (b"\n\n")
        )
    return b"data: " + json.dumps({"error": {**error, "code": "overloaded"}}).encode() + b"\n\n"


@contextlib.contextmanager
def fake_provider(script: Script = echo, **options: Any) -> Iterator[FakeProvider]:
    """Run a `FakeProvider` inside a `with` block."""
    with FakeProvider(script, **options) as provider:
        yield provider


def load(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    parser = argparse.ArgumentParser(description="A provider that is not there.")
    parser.add_argument("--script", default="tests.llm.fake_server:echo", help="module:function")
    parser.add_argument("--model", help="module:function of a scripted model, in place of a script")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--split", type=int, default=0, help="bytes of a piece of a stream")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two pieces")
    given = parser.parse_args()
    script = served(load(given.model)) if given.model else load(given.script)
    with FakeProvider(script, split=given.split, pause=given.pause, port=given.port) as provider:
        print(provider.openai_url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
