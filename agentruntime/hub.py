"""Who hears the hints, and who looks now and then: one `Hub` per event loop, for all its feeds.

Hints of the publisher or the channel layer make watchers fast; a look at the database every
`SOCKET_POLL_SECONDS` makes them sure.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer

from agentruntime import events, signals
from agentruntime.conf import runtime_settings
from agentruntime.feeds import RETRY_SECONDS, Feed, Subscription, in_pool
from agentruntime.stored_events import read_heads


class Hub:
    """All feeds of one event loop: who hears the hints, and who looks now and then."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._feeds: dict[uuid.UUID, Feed] = {}
        self._topics: dict[uuid.UUID, set[asyncio.Event]] = {}
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
        self._stop_if_idle()

    @contextlib.asynccontextmanager
    async def hints(self, topic: uuid.UUID) -> AsyncIterator[asyncio.Event]:
        """Give an event that is set whenever `events.hint(topic)` is called, in any process.

        A hint may be lost: look now and then all the same.
        """
        news = asyncio.Event()
        self._topics.setdefault(topic, set()).add(news)
        self._start()
        try:
            await self._group("group_add", topic)
            yield news
        finally:
            self._topics[topic].discard(news)
            if not self._topics[topic]:
                del self._topics[topic]
                await self._group("group_discard", topic)
            self._stop_if_idle()

    def _start(self) -> None:
        if not self._tasks:
            events.listen(self._hear)
            self._tasks = [asyncio.create_task(self._look())]
            if _shared_layer() is not None:
                self._tasks.append(asyncio.create_task(self._receive()))

    def _stop_if_idle(self) -> None:
        if self._feeds or self._topics:
            return
        self._changing = {id: lock for id, lock in self._changing.items() if lock.locked()}
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
        for listener in self._topics.get(news.thread_id, ()):
            listener.set()

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
                for watched in [*self._feeds, *self._topics]:
                    await layer.group_add(events.group_name(watched), self._channel)
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
