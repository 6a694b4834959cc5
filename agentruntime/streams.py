"""Server-sent events: the frames of a stream, checked again every few seconds as sockets are.

Under ASGI they come from the hub. Under WSGI a stream holds a whole thread, so it reads the
database in turns and ends after a while; the client comes back with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections

from agentruntime.conf import runtime_settings
from agentruntime.credentials import Credential, refusal_again
from agentruntime.feeds import find_place, in_pool
from agentruntime.hub import hub
from agentruntime.stored_events import Row, lost_place, read_rows

KEEP_ALIVE_SECONDS = 15.0
WSGI_SECONDS = 25.0
WSGI_PAUSE_SECONDS = 0.5

_open: Counter[str] = Counter()


def frames(
    request: Any,
    credential: Credential,
    thread_id: uuid.UUID,
    run_id: uuid.UUID | None,
    after: int,
) -> AsyncIterator[str] | Iterator[str] | None:
    """Return the frames of a stream; None where the user has too many open."""
    user = str(credential.user_id)
    if _open[user] >= runtime_settings().SOCKETS_PER_USER:
        return None
    if isinstance(request, ASGIRequest):
        return _live(user, credential, thread_id, run_id, after)
    return _in_turns(user, credential, thread_id, run_id, after)


def as_frame(found: Row | str) -> str:
    """Return one event as a server-sent event; a live frame has no id and moves nothing."""
    if isinstance(found, str):
        return f"event: {json.loads(found)['type']}\ndata: {found}\n\n"
    return f"id: {found.seq}\nevent: {found.type}\ndata: {found.text}\n\n"


async def _live(
    user: str, credential: Credential, thread_id: uuid.UUID, run_id: uuid.UUID | None, after: int
) -> AsyncIterator[str]:
    _open[user] += 1
    try:
        async with hub().watch(thread_id, after, run_id) as subscription:
            yield ": open\n\n"
            if news := await find_place(subscription):
                yield as_frame(json.dumps(news))
            looked = said = time.monotonic()
            while True:
                found = await _next(subscription)
                now = time.monotonic()
                if now - looked > runtime_settings().SOCKET_RECHECK_SECONDS:
                    if await in_pool(refusal_again, credential, thread_id):
                        return
                    looked = now
                if found == []:
                    return
                for one in found or ():
                    yield as_frame(one)
                    said = now
                if now - said > KEEP_ALIVE_SECONDS:
                    yield ": still here\n\n"
                    said = now
    finally:
        _open[user] -= 1


async def _next(subscription: Any) -> list[Row | str] | None:
    """Return what is next, or None where nothing came before the next check is due."""
    try:
        async with asyncio.timeout(runtime_settings().SOCKET_RECHECK_SECONDS):
            found: list[Row | str] = await subscription.next()
            return found
    except TimeoutError:
        return None


def _in_turns(
    user: str, credential: Credential, thread_id: uuid.UUID, run_id: uuid.UUID | None, after: int
) -> Iterator[str]:
    _open[user] += 1
    try:
        yield "retry: 1000\n\n"
        if lost := lost_place(thread_id, after):
            after, news = lost
            yield as_frame(json.dumps(news))
        until = time.monotonic() + WSGI_SECONDS
        while time.monotonic() < until:
            if refusal_again(credential, thread_id):
                return
            for row in read_rows(thread_id, after):
                after = row.seq
                if run_id in (None, row.run_id):
                    yield as_frame(row)
            close_old_connections()
            time.sleep(WSGI_PAUSE_SECONDS)
    finally:
        _open[user] -= 1
