"""`/ws/approvals/`: what happens to the approvals that a person may see, as it happens.

Read-only. One reader per event loop looks at the stored events for all its sockets; each socket
is given those about approvals that its person may see at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import OrderedDict
from datetime import timedelta

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import timezone

from agentruntime.credentials import REASONS, Credential, credential_of_session, user_of
from agentruntime.models import Event
from agentruntime.stored_events import event_body
from approvals.models import Approval
from approvals.permissions import rights_of, visible_to
from approvals.queue import may_open_queue

NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
TOO_MUCH = 1009
POLL_SECONDS = 1.0
LATE_SECONDS = 60
CHECK_SECONDS = 20.0
MAX_KNOWN = 5_000
MAX_WAITING = 500
MAX_MESSAGE_CHARACTERS = 4_096
TYPES = ("approval.requested", "approval.decided", "approval.expired")

in_thread = database_sync_to_async


class Reader:
    """Reads new events about approvals once a second, while anybody listens."""

    def __init__(self) -> None:
        self.queues: set[asyncio.Queue[Event]] = set()
        # Numbers are given before commits, so a later number may be seen earlier: a window of time
        # is read again and what was told already is left out.
        self.known: OrderedDict[int, None] = OrderedDict()
        self.task: asyncio.Task[None] | None = None

    async def join(self) -> asyncio.Queue[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue(MAX_WAITING)
        if self.task is None or self.task.done():
            for event in await in_thread(_recent)():
                self.known[event.pk] = None
            self.task = asyncio.create_task(self._work())
        self.queues.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[Event]) -> None:
        self.queues.discard(queue)
        if not self.queues and self.task is not None:
            self.task.cancel()
            self.task = None

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with contextlib.suppress(Exception):  # the database is away: the next look finds it all
                for event in await in_thread(_recent)():
                    self._tell(event)

    def _tell(self, event: Event) -> None:
        if event.pk in self.known:
            return
        self.known[event.pk] = None
        while len(self.known) > MAX_KNOWN:
            self.known.popitem(last=False)
        for queue in self.queues:
            if queue.full():  # a slow one misses news; its page asks for the whole anyway
                queue.get_nowait()
            queue.put_nowait(event)


def _recent() -> list[Event]:
    since = timezone.now() - timedelta(seconds=LATE_SECONDS)
    return list(Event.objects.filter(at__gte=since, type__in=TYPES).order_by("id")[:MAX_KNOWN])


_readers: dict[int, Reader] = {}


def reader_of_this_loop() -> Reader:
    loop = id(asyncio.get_running_loop())
    return _readers.setdefault(loop, Reader())


class ApprovalEvents(AsyncWebsocketConsumer):
    """One socket of one person who may open the queue."""

    channel_layer_alias = "approvals-needs-none"

    async def connect(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.queue: asyncio.Queue[Event] | None = None
        # A close code reaches a browser only on a socket that was accepted.
        await self.accept(self.scope.get("subprotocol"))
        self.credential = self.scope.get("credential") or credential_of_session(
            self.scope.get("session")
        )
        if code := await in_thread(_refusal)(self.credential):
            await self.close(code)
            return
        self.queue = await reader_of_this_loop().join()
        self.task = asyncio.create_task(self._work(self.queue))

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        await super().close(code, reason or REASONS.get(code or 0))

    async def disconnect(self, code: int) -> None:
        if self.queue is not None:
            reader_of_this_loop().leave(self.queue)
        if self.task is not None:
            self.task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked over the socket, and nothing can be decided."""
        if len(text_data or bytes_data or "") > MAX_MESSAGE_CHARACTERS:
            await self.close(TOO_MUCH)

    async def _work(self, queue: asyncio.Queue[Event]) -> None:
        checked = time.monotonic()
        while True:
            event = None
            with contextlib.suppress(TimeoutError):
                event = await asyncio.wait_for(queue.get(), CHECK_SECONDS)
            if event is None or time.monotonic() - checked > CHECK_SECONDS:
                checked = time.monotonic()
                if code := await in_thread(_refusal)(self.credential):
                    await self.close(code)
                    return
            if event is not None and await in_thread(_may_see)(self.credential, event):
                await self.send(json.dumps(event_body(event)))


def _refusal(credential: Credential | None) -> int | None:
    user = user_of(credential) if credential is not None else None
    if user is None:
        return NOT_AUTHENTICATED
    return None if may_open_queue(rights_of(user)) else NOT_ALLOWED


def _may_see(credential: Credential, event: Event) -> bool:
    rights = rights_of(credential.user_id)
    seen = Approval.objects.filter(visible_to(rights, own=False), pk=event.data.get("approval"))
    return bool(seen.exists())
