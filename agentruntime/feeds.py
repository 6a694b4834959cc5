"""Following the events of a thread: join, then what is stored, then what comes.

One `Hub` per event loop reads for all its watchers. A watcher (`Subscription`) only says how far it
has come and takes what is next, so a slow one costs nobody else anything, and none is missed or
given twice: the number decides, wherever the row comes from (the ring of the newest, or the
database). Hints of the publisher or the channel layer make it fast; a look at the database every
`SOCKET_POLL_SECONDS` makes it sure.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from channels.db import database_sync_to_async
from channels.layers import InMemoryChannelLayer, get_channel_layer

from agentruntime import events, signals
from agentruntime.conf import runtime_settings
from agentruntime.stored_events import Row, oldest_seq, read_heads, read_rows

RING_SIZE = 512
MAX_LIVE_FRAMES = 200
RETRY_SECONDS = 1.0

_pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="feeds")


async def in_pool(fn: Any, *args: Any) -> Any:
    """Run a function that reads the database in one of the few threads kept for watchers."""
    return await database_sync_to_async(fn, thread_sensitive=False, executor=_pool)(*args)


class Subscription:
    """One watcher: the last number it has, and the live frames it was not given yet."""

    def __init__(self, feed: Feed, last: int, run_id: uuid.UUID | None) -> None:
        self.feed, self.last, self.run_id = feed, last, run_id
        self.ended = False
        self._live: deque[str] = deque(maxlen=MAX_LIVE_FRAMES)
        self._wake = asyncio.Event()

    async def next(self) -> list[Row | str]:
        """Wait for what is next and return it: stored events in order, then live frames.

        Empty when the thread is gone.
        """
        while not self.ended:
            self._wake.clear()
            found: list[Row | str] = list(await self._stored())
            if not found and self.last >= self.feed.head:
                found = list(self._live)
                self._live.clear()
            if found:
                return found
            if self.last >= self.feed.head:
                await self._wake.wait()
        return []

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

    def offer(self, frames: Iterable[tuple[str, str]]) -> None:
        """Add live frames, unless this watcher still catches up with what is stored."""
        if self.last >= self.feed.head:
            wanted = str(self.run_id) if self.run_id else None
            self._live.extend(text for run, text in frames if wanted in (None, run))
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
            if news.seq > self.head:
                await self._read()
            if news.frames:
                for watcher in self.watchers:
                    watcher.offer(news.frames)

    async def _read(self) -> None:
        while rows := await in_pool(read_rows, self.thread_id, self.head):
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


class Hub:
    """All feeds of one event loop: who hears the hints, and who looks now and then."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._feeds: dict[uuid.UUID, Feed] = {}
        self._changing: dict[uuid.UUID, asyncio.Lock] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._channel: str | None = None

    @contextlib.asynccontextmanager
    async def watch(
        self, thread_id: uuid.UUID, after: int, run_id: uuid.UUID | None = None
    ) -> AsyncIterator[Subscription]:
        """Give a subscription to the events of a thread after the number `after`."""
        feed = await self._join(thread_id)
        subscription = Subscription(feed, after, run_id)
        feed.watchers.add(subscription)
        try:
            yield subscription
        finally:
            feed.watchers.discard(subscription)
            await self._leave(feed)

    async def _join(self, thread_id: uuid.UUID) -> Feed:
        async with self._changing.setdefault(thread_id, asyncio.Lock()):
            feed = self._feeds.get(thread_id)
            if feed is None:
                heads = await in_pool(read_heads, [thread_id])
                feed = self._feeds[thread_id] = Feed(thread_id, heads.get(thread_id, 0))
                self._start()
                await self._group("group_add", thread_id)
                # Joined; what was stored since the first look is found by this one.
                heads = await in_pool(read_heads, [thread_id])
                feed.tell(events.News(thread_id, heads.get(thread_id, 0)))
            return feed

    async def _leave(self, feed: Feed) -> None:
        lock = self._changing.setdefault(feed.thread_id, asyncio.Lock())
        async with lock:
            if feed.watchers or self._feeds.get(feed.thread_id) is not feed:
                return
            del self._feeds[feed.thread_id]
            feed.close()
            await self._group("group_discard", feed.thread_id)
        if not self._feeds:
            self._stop()
            self._changing = {id: lock for id, lock in self._changing.items() if lock.locked()}

    def _start(self) -> None:
        if not self._tasks:
            events.listen(self._hear)
            self._tasks = [asyncio.create_task(self._look())]
            if _shared_layer() is not None:
                self._tasks.append(asyncio.create_task(self._receive()))

    def _stop(self) -> None:
        events.forget(self._hear)
        for task in self._tasks:
            task.cancel()
        self._tasks, self._channel = [], None

    def _hear(self, news: events.News) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._tell, news)

    def _tell(self, news: events.News) -> None:
        if feed := self._feeds.get(news.thread_id):
            feed.tell(news)

    async def _look(self) -> None:
        """Ask the database how far each watched thread is; end the feeds of deleted ones."""
        while True:
            await asyncio.sleep(runtime_settings().SOCKET_POLL_SECONDS)
            watched = list(self._feeds)
            try:
                heads = await in_pool(read_heads, watched)
            except Exception as error:
                facts = {"error": f"{type(error).__name__}: {error}"[:300]}
                signals.noticed.send(Hub, level="warning", event="feeds_not_read", facts=facts)
                continue
            for thread_id in watched:
                feed = self._feeds.get(thread_id)
                if feed is not None and thread_id not in heads:
                    for watcher in tuple(feed.watchers):
                        watcher.end()
                elif feed is not None and heads[thread_id] > feed.head:
                    feed.tell(events.News(thread_id, heads[thread_id]))

    async def _receive(self) -> None:
        """Hear what other processes tell, for as long as the channel layer lives."""
        layer = _shared_layer()
        while True:
            try:
                self._channel = await layer.new_channel()
                for thread_id in list(self._feeds):
                    await layer.group_add(events.group_name(thread_id), self._channel)
                while True:
                    if news := events.from_message(await layer.receive(self._channel)):
                        self._tell(news)
            except Exception:  # the look at the database stands in for it
                self._channel = None
                await asyncio.sleep(RETRY_SECONDS)

    async def _group(self, change: str, thread_id: uuid.UUID) -> None:
        layer = _shared_layer()
        if layer is not None and self._channel is not None:
            with contextlib.suppress(Exception):  # only a hint is lost
                async with asyncio.timeout(RETRY_SECONDS):
                    await getattr(layer, change)(events.group_name(thread_id), self._channel)


def _shared_layer() -> Any:
    layer = get_channel_layer()
    return None if isinstance(layer, InMemoryChannelLayer) else layer


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """Return the hub of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        for closed in [one for one in _hubs if one.is_closed()]:
            del _hubs[closed]
        _hubs[loop] = Hub()
    return _hubs[loop]


async def find_place(subscription: Subscription) -> dict[str, Any] | None:
    """Move a subscription to where it can go on, if its place is gone; return what to tell of it.

    A place is gone where the events after it were deleted with age, or where it never was: the
    client saw another database.
    """
    feed, last = subscription.feed, subscription.last
    oldest = await in_pool(oldest_seq, feed.thread_id)
    too_old = oldest is not None and last + 1 < oldest
    if not too_old and last <= feed.head:
        return None
    newest = (await in_pool(read_heads, [feed.thread_id])).get(feed.thread_id, 0)
    if not too_old and last <= newest:
        return None
    subscription.last = oldest - 1 if oldest is not None and too_old else newest
    return {"type": "resync", "oldest": oldest, "newest": newest}
