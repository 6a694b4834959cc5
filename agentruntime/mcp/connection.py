"""One connection per server and process, made when it is needed and made again when it broke.

All of them live on an event loop of their own: a connection outlives the call that made it, and a
server that floods it slows nobody else's loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from agentruntime.exceptions import McpUnreachable, ResultNotStorable
from agentruntime.mcp.transports import PACKED, TOO_LONG, UNREADABLE

T = TypeVar("T")
MAX_PAGES = 50
TOO_MUCH = (TOO_LONG, PACKED)
# How the SDK begins its own words for a request that was sent and got no answer, or none that can
# be read. A server may use the codes that come with them for anything.
CLOSED = "Connection closed"
BROKEN = (
    CLOSED,
    "Failed to parse",
    "SSE stream",
    "Unexpected content type",
    "server answered a request with 202",
    UNREADABLE,
)
SESSION_ENDED = "Session terminated"

END_SECONDS = 8.0
"""How long a server has to end; what starts processes takes six to end the stubborn ones."""

_known: WeakSet[Connection] = WeakSet()
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def connection_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the connections of this process."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="mcp-connections", daemon=True).start()
        return _loop


def _forget() -> None:
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class SessionEnded(McpUnreachable):
    """The server knows the session no more, as after a restart, and refused the call for it."""


class Connection:
    """The way to one server. `open_transport` makes a transport of the SDK; each serves once."""

    def __init__(
        self, server: str, open_transport: Callable[[], Any], connect_timeout: float
    ) -> None:
        self.server, self._open, self._timeout = server, open_transport, connect_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Event | None = None
        self._making: asyncio.Lock | None = None
        self.is_stale = True
        """Whether what the server offers may have changed since it was listed."""

    def begin(self, work: Coroutine[Any, Any, T]) -> Any:
        """Start `work` on the loop of the connections; return its future."""
        loop = connection_loop()
        if self._loop is not loop:  # the first use in this process
            self._loop, self._client, self._task = loop, None, None
            self._making = asyncio.Lock()
            _known.add(self)
        return asyncio.run_coroutine_threadsafe(work, loop)

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was used since this process was forked."""
        return self._loop is not None and self._loop is _loop

    async def list_tools(self) -> list[Any]:
        """Return the tools that the server offers, all pages. Raises `McpUnreachable`."""
        client = await self._connected()
        self.is_stale = False
        try:
            found, cursor = [], None
            for _ in range(MAX_PAGES):
                page = await asyncio.wait_for(
                    client.list_tools(cursor=cursor, cache_mode="bypass"), self._timeout
                )
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            return found
        except Exception as error:
            await self.drop(client)
            raise self._unreachable(error) from None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of the server. Raises `McpUnreachable` where the call was not made,
        `ConnectionResetError` where it may have been carried out, and `ResultNotStorable` where it
        was and its answer is too long.
        """
        from mcp.shared.exceptions import MCPError  # the SDK takes two seconds to load
        from mcp_types import REQUEST_TIMEOUT

        client = await self._connected()
        try:
            return await client.call_tool(name, arguments)
        except MCPError as error:
            said = error.error.message
            if any(words in said for words in TOO_MUCH):
                raise ResultNotStorable(tool=name, reason=said) from None
            if said == SESSION_ENDED:
                await self.drop(client)
                self.is_stale = True
                raise SessionEnded(server=self.server, reason=said) from None
            if not said.startswith(BROKEN) and error.error.code != REQUEST_TIMEOUT:
                raise
            if said.startswith(CLOSED):  # else it is this answer only that is missing
                await self.drop(client)
            raise ConnectionResetError(
                f"the MCP server {self.server!r} went away ({said[:200]})"
            ) from None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self.drop(client)
            reason = f"the line to the MCP server {self.server!r} broke ({type(error).__name__})"
            raise ConnectionResetError(reason) from None

    async def _connected(self) -> Any:
        assert self._making is not None
        async with self._making:
            if self._client is not None and self._task is not None and not self._task.done():
                return self._client
            self.is_stale = True
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._end = asyncio.Event()
            self._task = asyncio.create_task(self._serve(ready, self._end))
            try:
                self._client = await asyncio.wait_for(asyncio.shield(ready), self._timeout)
            except Exception as error:
                self._task.cancel()
                raise self._unreachable(error) from None
            return self._client

    async def _serve(self, ready: asyncio.Future[Any], end: asyncio.Event) -> None:
        from mcp import Client

        try:
            async with Client(self._open(), message_handler=self._hear) as client:
                ready.set_result(client)
                await end.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_innermost(error))
                ready.exception()
            if not isinstance(error, Exception):
                raise

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.is_stale = True

    async def drop(self, client: Any = None) -> None:
        """End the connection, if there is one; the next use makes another.

        With `client` only if that is still the one: what another call has made since is its own.
        """
        if client is not None and client is not self._client:
            return
        self._client = None
        if self._end is not None:
            self._end.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=END_SECONDS)
            for task in late:
                task.cancel()

    def _unreachable(self, error: Exception) -> McpUnreachable:
        reason = str(error) or type(error).__name__
        return McpUnreachable(server=self.server, reason=reason[:300])


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError(type(error).__name__)


def close_connections(*some: Connection) -> None:
    """End these connections, or all of this process, and wait for it; a later use makes others."""
    ending = [one.begin(one.drop()) for one in some or list(_known) if one.is_of_this_process]
    for one in ending:
        with suppress(Exception):
            one.result(END_SECONDS)


# Also of a process that nobody tells to end its work first, as a web server or a shell command.
atexit.register(close_connections)
