"""Tells watchers that something happened: after the commit, from one thread, never in the way.

What is told is a hint. A watcher reads the stored events by their number, so a hint may be lost,
late or doubled and nothing is missed; only what is never stored (`message.delta`, what a tool
emits) is gone when nobody listens. A worker hands a hint over and goes on: the thread of this
module talks to the channel layer, and a dead layer costs nobody anything.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from channels.layers import InMemoryChannelLayer, get_channel_layer

from agentruntime import signals

SEND_SECONDS = 3.0
TOGETHER_SECONDS = 0.05
"""What comes within so long of the last news is told together: a hint costs as much as a step."""
PAUSE_AFTER_FAILURE_SECONDS = 2.0
MAX_PENDING_THREADS = 10_000
MAX_PENDING_FRAMES = 200
MAX_FRAME_CHARACTERS = 65_536
PROCESS = uuid.uuid4().hex


@dataclass
class News:
    """What happened on one thread since it was last told: its newest number, live frames."""

    thread_id: uuid.UUID
    seq: int = 0
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True)
class Frame:
    """Something live: its JSON text, and the number of the event that it comes after.

    `after` is 0 where the news names no newer event before it.
    """

    run: str
    text: str
    after: int = 0


Listener = Callable[[News], None]
_listeners: set[Listener] = set()


def listen(listener: Listener) -> None:
    """Call `listener` with the news of this process, from the publisher's thread."""
    _listeners.add(listener)


def forget(listener: Listener) -> None:
    """Stop calling `listener`."""
    _listeners.discard(listener)


def group_name(thread_id: uuid.UUID) -> str:
    """Return the channel layer's group for the watchers of a thread."""
    return f"agentruntime.thread.{thread_id.hex}"


def frame_text(kind: str, run_id: Any, thread_id: Any, data: Any) -> str:
    """Return a live frame as JSON text; what is no JSON becomes text, or is left out."""
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    frame = {"type": kind, "run": str(run_id), "thread": str(thread_id), "at": at}
    try:
        text = json.dumps({**frame, "data": data}, default=str, allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):
        text = json.dumps({**frame, "data": {"unreadable": type(data).__name__}})
    if len(text) > MAX_FRAME_CHARACTERS:
        text = json.dumps({**frame, "data": {"too_long": len(text)}})
    return text


class Publisher:
    """One thread per process that tells the news, joined per thread while it is busy."""

    def __init__(self) -> None:
        self._pending: dict[uuid.UUID, News] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._quiet_until = 0.0

    def tell(self, thread_id: uuid.UUID, seq: int = 0, frame: Frame | None = None) -> None:
        """Take note and return at once; the oldest live frames give way when there are too many."""
        with self._changed:
            news = self._pending.get(thread_id)
            if news is None:
                if len(self._pending) >= MAX_PENDING_THREADS:
                    return
                news = self._pending[thread_id] = News(thread_id)
            news.seq = max(news.seq, seq)
            if frame is not None:
                news.frames.append(replace(frame, after=news.seq))
                del news.frames[:-MAX_PENDING_FRAMES]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="events", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _work(self) -> None:
        loop = asyncio.new_event_loop()
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                batch, self._pending = self._pending, {}
            for news in batch.values():
                for listener in tuple(_listeners):
                    _quietly(lambda listener=listener, news=news: listener(news))
            _quietly(lambda batch=batch: loop.run_until_complete(self._send(list(batch.values()))))
            time.sleep(TOGETHER_SECONDS)

    async def _send(self, batch: list[News]) -> None:
        layer = get_channel_layer()
        if layer is None or isinstance(layer, InMemoryChannelLayer):
            return  # no other process hears it
        for news in batch:
            if time.monotonic() < self._quiet_until:
                return
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await layer.group_send(group_name(news.thread_id), as_message(news))
            except Exception as error:
                self._quiet_until = time.monotonic() + PAUSE_AFTER_FAILURE_SECONDS
                facts = {"error": f"{type(error).__name__}: {error}"[:300]}
                signals.noticed.send(
                    type(self), level="warning", event="live_news_not_sent", facts=facts
                )


def as_message(news: News) -> dict[str, Any]:
    """Return news as the channel layer carries it."""
    return {
        "type": "thread.news",
        "process": PROCESS,
        "thread": news.thread_id.hex,
        "seq": news.seq,
        "frames": [(one.run, one.text) for one in news.frames],
        "after": [one.after for one in news.frames],
    }


def from_message(message: dict[str, Any]) -> News | None:
    """Return the news of another process; None for this process's own, which it knows already."""
    if message.get("type") != "thread.news" or message.get("process") == PROCESS:
        return None
    after = message.get("after") or [0] * len(message["frames"])  # told by an older release
    told = zip(message["frames"], after, strict=True)
    frames = [Frame(run, text, seq) for (run, text), seq in told]
    return News(uuid.UUID(message["thread"]), message["seq"], frames)


def _quietly(work: Callable[[], Any]) -> None:
    try:
        work()
    except Exception as error:  # a watcher's fault must not end the news for all others
        facts = {"error": f"{type(error).__name__}: {error}"[:300]}
        signals.noticed.send(Publisher, level="error", event="live_news_failed", facts=facts)


_publisher = Publisher()


def _forget_after_fork() -> None:
    global _publisher, PROCESS
    _publisher, PROCESS = Publisher(), uuid.uuid4().hex
    _listeners.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def hint(topic: uuid.UUID) -> None:
    """Tell whoever listens to a topic (an id that an app has made up) that there is something to
    read. Merged while the publisher is busy; it may be lost.
    """
    _publisher.tell(topic)


def on_committed(*, thread_id: Any, seq: int, **_: Any) -> None:
    """Tell that events up to `seq` are stored."""
    _publisher.tell(_as_uuid(thread_id), seq=seq)


def on_progressed(*, thread_id: Any, run_id: Any, type: str, data: Any, **_: Any) -> None:
    """Pass on what is never stored."""
    frame = Frame(str(run_id), frame_text(type, run_id, thread_id, data))
    _publisher.tell(_as_uuid(thread_id), frame=frame)


def _as_uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


signals.committed.connect(on_committed, dispatch_uid="agentruntime.events.committed")
signals.progressed.connect(on_progressed, dispatch_uid="agentruntime.events.progressed")
