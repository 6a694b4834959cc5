"""What every websocket of the site has: who is behind it, what bounds it, and how it ends.

A socket is read-only. Its three loops are sending, looking again whether its person may still
watch, and being read from. None of them takes part in the channel layer (`hub` does, for all),
so a layer that is down refuses nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from agentruntime.conf import runtime_settings
from agentruntime.credentials import (
    NOT_AUTHENTICATED,
    REASONS,
    TOO_MANY,
    TOO_SLOW,
    TRY_LATER,
    credential_of_session,
)
from agentruntime.feeds import in_pool

MAX_MESSAGE_CHARACTERS = 4_096
MAX_MESSAGES = 30
PER_SECONDS = 10.0
MESSAGE_TOO_BIG = 1009
FAILED = 1011
GONE = 1006
UNCHECKED_SECONDS = 5.0

_open: Counter[str] = Counter()


class WatchingSocket(AsyncWebsocketConsumer):
    """Base: a subclass says who may watch (`prepare`, `refused_now`) and what is sent (`watch`)."""

    channel_layer_alias = "agentruntime-needs-none"

    async def prepare(self) -> int | None:
        """Read what is wanted; return the code to close with where it is not to be had."""
        raise NotImplementedError

    def refused_now(self) -> int | None:
        """Return the code to close with where the person may not watch any more. Reads afresh."""
        raise NotImplementedError

    async def watch(self) -> None:
        """Send what is to be sent, for as long as the socket is open."""
        raise NotImplementedError

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one socket, until it ends or is given up: a deaf client cannot even be told."""
        self.given_up = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.counted = ""
        self.ending = False
        self.received: deque[float] = deque(maxlen=MAX_MESSAGES)
        serving = asyncio.ensure_future(super().__call__(scope, receive, send))
        leaving = asyncio.ensure_future(self.given_up.wait())
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            leaving.cancel()
            await self.disconnect(GONE)

    async def connect(self) -> None:
        # A close code reaches a browser only on a socket that was accepted.
        await self.accept(self.scope.get("subprotocol"))
        self.credential = self.scope.get("credential") or credential_of_session(
            self.scope.get("session")
        )
        code = NOT_AUTHENTICATED if self.credential is None else await self.prepare()
        if code is None and not self._count():
            code = TOO_MANY
        if code is not None:
            await self.close(code)
            return
        self.tasks = [
            asyncio.create_task(self._guarded(self.watch())),
            asyncio.create_task(self._guarded(self._check_again())),
        ]

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        await super().close(code, reason or REASONS.get(code or 0))

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        if self.counted:
            _open[self.counted] -= 1
            self.counted = ""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked over the socket; what is sent all the same is bounded and dropped."""
        now = time.monotonic()
        full = len(self.received) == MAX_MESSAGES
        if len(text_data or bytes_data or "") > MAX_MESSAGE_CHARACTERS:
            await self.close(MESSAGE_TOO_BIG)
        elif full and now - self.received[0] < PER_SECONDS:
            await self.close(TOO_MANY)
        self.received.append(now)

    def _count(self) -> bool:
        user = str(self.credential.user_id)
        if _open[user] >= runtime_settings().SOCKETS_PER_USER:
            return False
        _open[user] += 1
        self.counted = user
        return True

    async def _guarded(self, work: Any) -> None:
        """Run a loop of this socket; a fault in it closes the socket instead of leaving it dumb."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            with contextlib.suppress(Exception):
                await self.close(FAILED)
            raise

    async def send_text(self, text: str) -> bool:
        """Send one frame; False where the client takes it too slowly, and the socket is ended."""
        try:
            async with asyncio.timeout(runtime_settings().SOCKET_SEND_SECONDS):
                await self.send(text_data=text)
        except TimeoutError:
            await self.end(TOO_SLOW)
            return False
        return True

    async def end(self, code: int) -> None:
        """Close the socket, once; without a word where even that is not taken."""
        if self.ending:
            return
        self.ending = True
        try:
            async with asyncio.timeout(runtime_settings().SOCKET_SEND_SECONDS):
                await self.close(code)
        except TimeoutError:
            self.given_up.set()

    async def _check_again(self) -> None:
        """Look every few seconds whether the caller may still watch; unknown means no."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(runtime_settings().SOCKET_RECHECK_SECONDS)
            try:
                code = await in_pool(self.refused_now)
                looked = time.monotonic()
            except Exception:  # the database is away
                code = TRY_LATER if time.monotonic() - looked > UNCHECKED_SECONDS else None
            if code:
                self.tasks[0].cancel()
                await self.end(code)
                return
