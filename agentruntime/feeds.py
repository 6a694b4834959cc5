"""Following the events of a thread: join, then what is stored, then what comes.

A `Feed` reads for all the watchers of its thread. A watcher (`Subscription`) only says how far it
has come and takes what is next, so a slow one costs nobody else anything, and none is missed or
given twice: the number decides, wherever the row comes from (the ring of the newest, or the
database). What tells a feed that there is something to read is the `hub`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from channels.db import database_sync_to_async

from agentruntime import events, signals
from agentruntime.stored_events import Row, lost_place, read_rows

RING_SIZE = 512
MAX_LIVE_FRAMES = 200
RETRY_SECONDS = 1.0

POOL_THREADS = 4

_pool = ThreadPoolExecutor(max_workers=POOL_THREADS, thread_name_prefix="feeds")


async def in_pool(fn: Any, *args: Any) -> Any:
    """Run a function that reads the database in one of the few threads kept for watchers."""
    return await database_sync_to_async(fn, thread_sensitive=False, executor=_pool)(*args)


class Subscription:
    """One watcher: the last number it has, and the live frames it was not given yet."""

    def __init__(self, feed: Feed, last: int, run_id: uuid.UUID | None) -> None:
        self.feed, self.last, self.run_id = feed, last, run_id
        self.ended = False
        self._live: deque[tuple[int, str]] = deque(maxlen=MAX_LIVE_FRAMES)
        self._wake = asyncio.Event()

    async def next(self) -> list[Row | str]:
        """Wait for what is next and return it: stored events in order, each live frame after the
        event that it came after. Empty when the thread is gone.
        """
        while not self.ended:
            self._wake.clear()
            found: list[Row | str] = []
            for row in await self._stored():
                found += [*self._live_before(row.seq), row]
            found += self._live_before(self.last + 1)
            if found:
                return found
            if self.last >= self.feed.head:
                await self._wake.wait()
        return []

    def _live_before(self, seq: int) -> list[str]:
        found = []
        while self._live and self._live[0][0] < seq:
            found.append(self._live.popleft()[1])
        return found

    async def _stored(self) -> list[Row]:
        if self.last >= self.feed.head:
            return []
        rows = self.feed.since(self.last)
        if rows is None:
            rows = await in_pool(read_rows, self.feed.thread_id, self.last)
        if not rows:
            self.last = self.feed.head  # pruned meanwhile
            return []
        self.last = rows[-1].seq
        return [row for row in rows if self.run_id in (None, row.run_id)]

    def wake(self) -> None:
        self._wake.set()

    def end(self) -> None:
        """Let `next()` return nothing: the thread is gone."""
        self.ended = True
        self._wake.set()

    def offer(self, frames: Iterable[events.Frame]) -> None:
        """Add live frames; the oldest give way where this watcher still catches up."""
        wanted = str(self.run_id) if self.run_id else None
        self._live.extend((one.after, one.text) for one in frames if wanted in (None, one.run))
        self._wake.set()


class Feed:
    """The newest events of one thread, as they are read for all its watchers."""

    def __init__(self, thread_id: uuid.UUID, head: int) -> None:
        self.thread_id, self.head = thread_id, head
        self.watchers: set[Subscription] = set()
        self._ring: deque[Row] = deque(maxlen=RING_SIZE)
        self._news: deque[events.News] = deque(maxlen=1000)
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    def since(self, seq: int) -> list[Row] | None:
        """Return the rows after `seq`; None where the ring does not reach that far back."""
        if not self._ring or self._ring[0].seq > seq + 1:
            return None
        return [row for row in self._ring if row.seq > seq]

    def tell(self, news: events.News) -> None:
        self._news.append(news)
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._take()
            except Exception as error:  # the database is away: the next look finds what was missed
                facts = {"thread": str(self.thread_id), "error": f"{type(error).__name__}: {error}"}
                signals.noticed.send(Feed, level="warning", event="feed_not_read", facts=facts)
                await asyncio.sleep(RETRY_SECONDS)

    async def _take(self) -> None:
        while self._news:
            news = self._news.popleft()
            # What is live is put in its place first: a watcher that takes an event has what came
            # before it.
            frames = [replace(one, after=one.after or self.head) for one in news.frames]
            for watcher in self.watchers if frames else ():
                watcher.offer(frames)
            if news.seq > self.head:
                await self._read(news.seq)

    async def _read(self, until: int) -> None:
        while self.head < until:
            rows = await in_pool(read_rows, self.thread_id, self.head)
            if not rows:  # pruned, or told before its time
                return
            if self._ring and rows[0].seq != self._ring[-1].seq + 1:
                self._ring.clear()
            self._ring.extend(rows)
            self.head = rows[-1].seq
            for watcher in self.watchers:
                watcher.wake()

    def close(self) -> None:
        self._task.cancel()
        for watcher in tuple(self.watchers):
            watcher.end()


async def find_place(subscription: Subscription) -> dict[str, Any] | None:
    """Move a subscription whose place is gone to where it can go on; return what to tell of it."""
    lost = await in_pool(lost_place, subscription.feed.thread_id, subscription.last)
    if lost is None:
        return None
    news: dict[str, Any]
    subscription.last, news = lost
    return news
