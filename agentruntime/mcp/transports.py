"""The two ways to a server, stdio and streamable HTTP, for answers of a bounded size only.

A message that is longer than `MAX_MESSAGE` is not kept in memory: the request that it answers ends
with an error that says `TOO_LONG`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

MAX_MESSAGE = 4 * 1_048_576
TOO_LONG = f"the answer is longer than {MAX_MESSAGE:,} bytes"
PACKED = "the answer is compressed, and nobody asked for that"
UNREADABLE = "the answer cannot be read"
CHUNK = 65_536
PATIENCE = 2.0
"""How many seconds a server has to end by itself, and then to end politely."""
NEAR = 1024
# Has the kernel send SIGTERM to the server when this process dies, however it does; see prctl(2).
# It holds over the exec, and for as long as the thread lives that starts servers: to the end.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):  # it died before it could be watched
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
# The id of a response, before all that may hold other ids, or as its last word.
IDENT = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,200}")'
ID_FIRST = re.compile(rb'\A\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + IDENT)
ID_LAST = re.compile(IDENT + rb"\s*\}\s*\Z")


# --- stdio -----------------------------------------------------------------------------------


def stdio(command: Sequence[str], env: Mapping[str, str] | None) -> Callable[[], Any]:
    """Return what makes transports to servers that it starts, each in a process group."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        import anyio
        from mcp.client.stdio import get_default_environment

        environment = {**get_default_environment(), **(env or {})}
        process = await asyncio.create_subprocess_exec(
            *guarded(command, environment),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,
        )
        heard, reading = anyio.create_memory_object_stream[Any](0)
        writing, said = anyio.create_memory_object_stream[Any](0)
        tasks = [
            asyncio.create_task(_hear(process, heard)),
            asyncio.create_task(_say(process, said, heard)),
        ]
        try:
            yield reading, writing
        finally:
            reading.close()
            writing.close()
            await asyncio.shield(asyncio.create_task(_end(process, tasks)))

    return make


def guarded(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts a server which does not outlive this process (Linux only; a
    server that reads its input to the end needs none of this). Raises `FileNotFoundError`.
    """
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        raise FileNotFoundError(f"there is no program {command[0]!r}")
    # Where Python is embedded, this is no interpreter.
    is_python = os.path.basename(sys.executable or "").startswith("python")
    if not (is_python and sys.platform.startswith("linux")):
        return [*command]
    return [sys.executable, "-I", "-S", "-c", GUARD, str(os.getpid()), *command]


async def _hear(process: Process, heard: Any) -> None:
    """Hand on what the server writes; to its end, even when nobody listens any more."""
    import anyio

    assert process.stdout is not None
    async with heard:
        async for line in read_lines(process.stdout):
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await heard.send(_message(line))


class Line:
    """A line of what a server writes; of one that is too long, its beginning and its end."""

    def __init__(self) -> None:
        self.text, self.end = bytearray(), b""

    @property
    def is_too_long(self) -> bool:
        return len(self.text) > MAX_MESSAGE

    def add(self, piece: bytes) -> None:
        if self.is_too_long:
            self.end = (self.end + piece)[-NEAR:]
        else:
            self.text += piece

    @property
    def ident(self) -> Any:
        """The id of the request that this answers, where it stands near an end; else None."""
        found = ID_FIRST.match(self.text) or ID_LAST.search(self.text[-NEAR:] + self.end)
        if found is None:
            return None
        ident = found[1].decode("utf-8", "replace")
        return ident.strip('"') if ident.startswith('"') else int(ident)


async def read_lines(stream: asyncio.StreamReader) -> AsyncIterator[Line]:
    """Yield each line that has come to its end."""
    line = Line()
    while chunk := await stream.read(CHUNK):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line.add(piece)
            yield line
            line = Line()
        line.add(rest)


def _message(line: Line) -> Any:
    from mcp.shared.message import SessionMessage
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

    ident, problem = line.ident, TOO_LONG
    if not line.is_too_long:
        text = bytes(line.text)
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError:
            ident, problem = _answered(text), UNREADABLE
    if ident is None:
        return ValueError(problem)
    error = ErrorData(code=PARSE_ERROR, message=problem)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=ident, error=error))


def _answered(text: bytes) -> int | str | None:
    """Return the id of the request that a broken message answers; None if it answers none."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_answer = isinstance(said, dict) and "method" not in said
    ident = said.get("id") if is_answer else None
    return ident if isinstance(ident, int | str) and not isinstance(ident, bool) else None


async def _say(process: Process, said: Any, heard: Any) -> None:
    assert process.stdin is not None
    async with said:
        async for one in said:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
            except OSError:  # it reads no more: whoever waits for an answer is told
                heard.close()
                return


async def _end(process: Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """End the server and all that it has started, whatever they do; leave nothing open."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), PATIENCE)
            break
    process._transport.close()  # type: ignore[attr-defined]  # else it warns when it is collected
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- streamable HTTP -------------------------------------------------------------------------


def http(url: str, headers: Mapping[str, str] | None) -> Callable[[], Any]:
    """Return what makes transports to the server at an address."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=httpx2.Timeout(30.0, read=300.0),
            transport=_bounded(httpx2.AsyncHTTPTransport()),
            trust_env=False,
        )
        async with (
            client,
            streamable_http_client(
                url, http_client=client, max_sse_event_size=2 * MAX_MESSAGE
            ) as streams,
        ):
            yield streams

    return make


async def _refuse_breakdown(answer: Any) -> None:
    """Raise an error of the line where a gateway gave up, or a server broke, while the request may
    be under way.
    """
    import httpx2

    kind = answer.headers.get("content-type", "").lower()
    if answer.status_code >= 500 and not kind.startswith("application/json"):
        await answer.aclose()
        raise httpx2.ReadError(f"the answer was HTTP {answer.status_code}")


def _bounded(transport: Any) -> Any:
    """Return a transport whose answers to a POST break off where they grow too long."""
    import httpx2

    class Refused(httpx2.SSEError, httpx2.StreamError):  # what the SDK expects of a bad body
        pass

    class Body(httpx2.AsyncByteStream):
        def __init__(self, inner: Any, is_packed: bool) -> None:
            self._inner, self._is_packed = inner, is_packed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            if self._is_packed:
                raise Refused(PACKED)
            size = 0
            async for piece in self._inner:
                size += len(piece)
                if size > MAX_MESSAGE:
                    raise Refused(TOO_LONG)
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Bounded(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            answer = await transport.handle_async_request(request)
            await _refuse_breakdown(answer)
            if request.method == "POST":
                packed = answer.headers.get("content-encoding", "identity") != "identity"
                answer.stream = Body(answer.stream, packed)
            return answer

        async def aclose(self) -> None:
            await transport.aclose()

    return Bounded()
