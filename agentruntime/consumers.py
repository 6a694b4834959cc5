"""Live events over websockets: what is stored after `after`, then what comes; read-only."""

from __future__ import annotations

import json
import uuid
from urllib.parse import parse_qs

from agentruntime.credentials import NOT_FOUND, refusal, refusal_again, thread_of_run
from agentruntime.feeds import find_place, in_pool
from agentruntime.hub import hub
from agentruntime.sockets import WatchingSocket

BAD_REQUEST = 4400


class EventsConsumer(WatchingSocket):
    """Base: follows a thread, or one run of it."""

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        """Return the thread to watch, and the run if only one is meant."""
        raise NotImplementedError

    async def prepare(self) -> int | None:
        after = self._after()
        if after is None:
            return BAD_REQUEST
        thread_id, self.run_id = await self.target()
        if thread_id is None:
            return NOT_FOUND
        self.thread_id, self.after = thread_id, after
        code: int | None = await in_pool(refusal, self.credential, thread_id, self.run_id)
        return code

    def refused_now(self) -> int | None:
        return refusal_again(self.credential, self.thread_id, self.run_id)

    async def watch(self) -> None:
        async with hub().watch(self.thread_id, self.after, self.run_id) as subscription:
            if news := await find_place(subscription):
                await self.send_text(json.dumps(news))
            while frames := await subscription.next():
                for frame in frames:
                    if not await self.send_text(frame if isinstance(frame, str) else frame.text):
                        return
        await self.end(NOT_FOUND)

    def _after(self) -> int | None:
        given = parse_qs(self.scope.get("query_string", b"").decode("latin-1")).get("after", ["0"])
        text = given[-1]
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


class ThreadEvents(EventsConsumer):
    """`/ws/threads/{id}/?after=SEQ`: everything that happens on a thread."""

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        return self.scope["url_route"]["kwargs"]["thread_id"], None


class RunEvents(EventsConsumer):
    """`/ws/runs/{id}/?after=SEQ`: what happens on one run of a thread."""

    async def target(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        run_id = self.scope["url_route"]["kwargs"]["run_id"]
        return await in_pool(thread_of_run, run_id), run_id
