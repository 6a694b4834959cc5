"""Live events over websockets: what is stored after `after`, then what comes; read-only.

The consumer takes no part in the channel layer itself (`feeds` does, for all of them), so a layer
that is down delays events by a poll and refuses nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections import Counter, deque
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer

from agentruntime.conf import runtime_settings
from agentruntime.credentials import (
    NOT_AUTHENTICATED,
    NOT_FOUND,
    REASONS,
    TOO_MANY,
    TOO_SLOW,
    TRY_LATER,
    credential_of_session,
    refusal,
    refusal_again,
    thread_of_run,
)
from agentruntime.feeds import Subscription, find_place, hub, in_pool

MAX_MESSAGE_CHARACTERS = 4_096
MAX_MESSAGES = 30
PER_SECONDS = 10.0
MESSAGE_TOO_BIG = 1009
BAD_REQUEST = 4400
GONE = 1006
UNCHECKED_SECONDS = 5.0

_open: Counter[str] = Counter()


class EventsConsumer(AsyncWebsocketConsumer):
    """Base: who may watch, and the three loops of a socket (send, check again, be read from)."""

    channel_layer_alias = "agentruntime-needs-none"

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
        after = self._after()
        if after is None:
            return await self.close(BAD_REQUEST)
        if self.credential is None:
            return await self.close(NOT_AUTHENTICATED)
        thread_id, run_id = await self.target()
        if thread_id is None:
            return await self.close(NOT_FOUND)
        self.thread_id: uuid.UUID = thread_id
        if code := await in_pool(refusal, self.credential, thread_id):
            return await self.close(code)
        if not self._count():
            return await self.close(TOO_MANY)
        self.tasks = [
            asyncio.create_task(self._guarded(self._watch(thread_id, after, run_id))),
            asyncio.create_task(self._guarded(self._check_again())),
        ]
        return None

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        await super().close(code, reason or REASONS.get(code or 0))

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        """Return the thread to watch, and the run if only one is meant."""
        raise NotImplementedError

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

    def _after(self) -> int | None:
        given = parse_qs(self.scope.get("query_string", b"").decode("latin-1")).get("after", ["0"])
        text = given[-1]
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None

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
                await self.close(1011)
            raise

    async def _watch(self, thread_id: uuid.UUID, after: int, run_id: uuid.UUID | None) -> None:
        async with hub().watch(thread_id, after, run_id) as subscription:
            await self._resync(subscription)
            while frames := await subscription.next():
                for frame in frames:
                    if not await self._send(frame if isinstance(frame, str) else frame.text):
                        return
        await self._end(NOT_FOUND)

    async def _resync(self, subscription: Subscription) -> None:
        """Say so where the place that the client names is gone, and go on from what there is."""
        if news := await find_place(subscription):
            await self._send(json.dumps(news))

    async def _send(self, text: str) -> bool:
        try:
            async with asyncio.timeout(runtime_settings().SOCKET_SEND_SECONDS):
                await self.send(text_data=text)
        except TimeoutError:
            await self._end(TOO_SLOW)
            return False
        return True

    async def _end(self, code: int) -> None:
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
                code = await in_pool(refusal_again, self.credential, self.thread_id)
                looked = time.monotonic()
            except Exception:  # the database is away
                code = TRY_LATER if time.monotonic() - looked > UNCHECKED_SECONDS else None
            if code:
                self.tasks[0].cancel()
                await self._end(code)
                return


class ThreadEvents(EventsConsumer):
    """`/ws/threads/{id}/?after=SEQ`: everything that happens on a thread."""

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        return self.scope["url_route"]["kwargs"]["thread_id"], None


class RunEvents(EventsConsumer):
    """`/ws/runs/{id}/?after=SEQ`: what happens on one run of a thread."""

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        run_id = self.scope["url_route"]["kwargs"]["run_id"]
        return await in_pool(thread_of_run, run_id), run_id
