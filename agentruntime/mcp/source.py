"""A server as a source of tools: the catalogue says what there is, the server runs it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps

from agentruntime.event_loops import on_event_loop
from agentruntime.exceptions import InvalidTool, McpToolChanged, McpToolFailed, McpUnreachable
from agentruntime.graph.json_values import digest
from agentruntime.graph.tools import ApprovalRule, Effect, Tool, as_tool
from agentruntime.mcp.catalogue import read_catalogue, store_listing
from agentruntime.mcp.connection import Connection, SessionEnded, close_connections
from agentruntime.mcp.listing import full_name, read_listing
from agentruntime.mcp.tool import CHANGED, RemoteTool, content_of, text_of
from agentruntime.mcp.transports import http, stdio
from agentruntime.models import McpTool
from agentruntime.models.transactions import give_back_connection
from agentruntime.signals import noticed

NAME = re.compile(r"[A-Za-z0-9-]{1,20}")
READ_AGAIN = 5.0
"""For how many seconds a process goes by what it has read from the catalogue."""
ASK_AGAIN = 30.0
"""After how many seconds a server that was away is asked again; at once if nothing is known."""
MAX_ERROR = 2000


class McpSource:
    """The tools of one server. Give it to an agent or a `ToolNode` in the place of a tool."""

    def __init__(
        self,
        name: str,
        open_transport: Callable[[], Any],
        *,
        options: Callable[[str], dict[str, Any]],
        only: Sequence[str] | None,
        refresh: float,
        connect_timeout: float,
    ) -> None:
        self.name, self.only, self.refresh_seconds = name, only, refresh
        self._options, self._timeout = options, connect_timeout
        self.connection = Connection(name, open_transport, connect_timeout)
        self._tools: list[Tool] | None = None
        self._read_at = self._listed_at = float("-inf")
        self._lock = threading.Lock()

    def tools(self) -> list[Tool]:
        """Return the tools as this process knows them; never asks the server."""
        if self._tools is None and apps.ready and not on_event_loop():
            self._read()
        return self._tools or []

    def load(self) -> None:
        """Look at the catalogue, and ask the server if that is due. A dead server is no error."""
        with self._lock:
            if time.monotonic() - self._listed_at >= self.refresh_seconds:
                self._listed_at = time.monotonic()
                if not self.list_now():  # a server that is away is not asked each time
                    wait = min(ASK_AGAIN if self.tools() else 0.0, self.refresh_seconds)
                    self._listed_at += wait - self.refresh_seconds
            if self._tools is None or time.monotonic() - self._read_at >= READ_AGAIN:
                self._read()

    def list_now(self) -> bool:
        """Ask the server what it offers; say whether it answered."""
        give_back_connection()
        try:
            offered = self.connection.begin(self.connection.list_tools()).result(3 * self._timeout)
        except (McpUnreachable, TimeoutError) as error:
            noticed.send(
                sender=None,
                level="warning",
                event="mcp server is away",
                facts={"server": self.name, "error": str(error)},
            )
            return False
        self._take(offered)
        return True

    def _take(self, offered: Sequence[Any]) -> dict[str, str]:
        """Store what the server offers and go by it; return the digests by name."""
        listing = read_listing(self.name, offered)
        store_listing(self.name, listing)
        self._read()
        return {one["name"]: digest(one) for one in listing}

    def _read(self) -> None:
        rows = read_catalogue(self.name)
        if self.only is not None:
            rows = [row for row in rows if row.name in self.only]
        self._tools = [made for row in rows if (made := self._made(row)) is not None]
        self._read_at = time.monotonic()

    def _made(self, row: McpTool) -> Tool | None:
        name, listing = full_name(self.name, row.name), row.listing

        async def call(**arguments: Any) -> Any:
            return await self._call(row.name, row.digest, arguments)

        try:
            made = RemoteTool(
                fn=call,
                name=name,
                description=listing["description"],
                input_schema=listing["schema"],
                digest=row.digest,
                must_ask=CHANGED if row.is_changed else "",
            )
            return as_tool(made, **self._options(row.name))
        except (InvalidTool, TypeError, KeyError) as error:
            facts = {"server": self.name, "tool": row.name, "problem": str(error)[:300]}
            noticed.send(sender=None, level="warning", event="mcp tool left out", facts=facts)
            return None

    async def _call(self, name: str, known: str, arguments: dict[str, Any]) -> Any:
        """Call a tool, if its server still says of it what it said when the call was made."""
        try:
            answer = await self._answer(name, known, arguments)
        except SessionEnded:
            answer = await self._answer(name, known, arguments)
        if answer.is_error:
            raise McpToolFailed(said=text_of(answer)[:MAX_ERROR] or "no reason given")
        return content_of(answer)

    async def _answer(self, name: str, known: str, arguments: dict[str, Any]) -> Any:
        if self.connection._loop is None or self.connection.is_stale:
            await self._compare(name, known)
        return await self._on_its_loop(self.connection.call_tool(name, arguments))

    async def _compare(self, name: str, known: str) -> None:
        offered = await self._on_its_loop(self.connection.list_tools())
        now = await sync_to_async(self._take)(offered)
        self._listed_at = time.monotonic()
        if now.get(name) != known:
            raise McpToolChanged(tool=full_name(self.name, name))

    async def _on_its_loop(self, work: Any) -> Any:
        return await asyncio.wrap_future(self.connection.begin(work))

    def close(self) -> None:
        """End the connection of this process."""
        close_connections(self.connection)


def mcp_tools(
    name: str,
    *,
    command: Sequence[str] | None = None,
    url: str = "",
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
    effect: Effect = "once",
    effects: Mapping[str, Effect] | None = None,
    approval: ApprovalRule | bool = True,
    approvals: Mapping[str, ApprovalRule | bool] | None = None,
    timeout: float = 60.0,
    refresh: float = 300.0,
    connect_timeout: float = 30.0,
) -> McpSource:
    """Return the tools of an MCP server: `command` starts one (stdio), `url` is one (HTTP).

    A tool is called `name__tool`. `only` names those that are offered, by their names at the
    server. `effect` and `approval` hold for all of them, `effects` and `approvals` for some, and
    `AGENTRUNTIME["TOOLS"]` lays the host's word over both. `timeout` is in seconds, and so is
    `refresh`, after which the server is asked again what it offers. `env` and `headers` may hold
    secrets: they are stored nowhere. Raises `InvalidTool`.
    """
    if not NAME.fullmatch(name):
        raise InvalidTool(tool=name, problem="a server's name has 1 to 20 letters, digits or -")
    if (command is None) == (not url):
        raise InvalidTool(tool=name, problem="a server has either a command or a url")

    def options(tool: str) -> dict[str, Any]:
        return {
            "effect": (effects or {}).get(tool, effect),
            "approval": (approvals or {}).get(tool, approval),
            "timeout": timeout,
        }

    transport = stdio(command, env) if command is not None else http(url, headers)
    return McpSource(
        name,
        transport,
        options=options,
        only=only,
        refresh=refresh,
        connect_timeout=connect_timeout,
    )
