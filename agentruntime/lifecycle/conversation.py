"""The messages of a claimed thread: from this process, the cache, or the database.

All three hold what never changes (a thread at a version, a message), so none can be stale; which of
them has what only decides how long a claim takes.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence

from agentruntime import cache
from agentruntime.conf import runtime_settings
from agentruntime.graph.messages import Message
from agentruntime.lifecycle.history import load_messages
from agentruntime.models import Checkpoint, Thread

MOST_MESSAGES = 5_000
"""How many messages a process keeps for the runs that it may be handed again."""


class _Kept:
    """The conversations that this process worked on last, each at one version."""

    def __init__(self) -> None:
        self._kept: OrderedDict[uuid.UUID, tuple[int, tuple[Message, ...]]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def put(self, thread_id: uuid.UUID, version: int, messages: Sequence[Message]) -> None:
        with self._lock:
            self._drop(thread_id)
            if len(messages) > MOST_MESSAGES // 2:
                return
            self._kept[thread_id] = (version, tuple(messages))
            self._count += len(messages)
            while self._count > MOST_MESSAGES:
                self._drop(next(iter(self._kept)))

    def take(self, thread_id: uuid.UUID, version: int) -> list[Message] | None:
        """Return the conversation up to this version and forget it: its worker brings a newer one.

        One of an earlier version is the beginning of it: messages are only ever appended.
        """
        with self._lock:
            found = self._drop(thread_id)
        return list(found[1]) if found and found[0] <= version else None

    def _drop(self, thread_id: uuid.UUID) -> tuple[int, tuple[Message, ...]] | None:
        found = self._kept.pop(thread_id, None)
        if found:
            self._count -= len(found[1])
        return found


_kept = _Kept()


def read_conversation(
    thread: Thread, head: Checkpoint, newest: Sequence[Message] = ()
) -> list[Message]:
    """Return all messages of the thread at its head, in order; `newest` are the last of them."""
    count = thread.message_count
    known = _kept.take(thread.pk, head.version)
    if known is not None and len(known) <= count:
        return known + _after(thread, len(known), newest)
    if len(newest) == count:
        return list(newest)
    recent = _recent(thread, head)
    older = count - len(recent)
    return load_messages(thread.pk, up_to=older) + recent if older else recent


def _after(thread: Thread, known: int, newest: Sequence[Message]) -> list[Message]:
    missing = thread.message_count - known
    if missing <= len(newest):
        return list(newest[len(newest) - missing :])
    return load_messages(thread.pk, after=known)


def _recent(thread: Thread, head: Checkpoint) -> list[Message]:
    if not head.node:  # an input that has just come in: nobody has kept it
        return []
    entry = cache.recall(thread.pk, head.version)
    try:
        if entry is None or entry["count"] != thread.message_count:
            return []
        recent = [Message.model_validate(one) for one in entry["messages"]]
    except (KeyError, TypeError, ValueError):
        return []
    return recent if len(recent) <= thread.message_count else []


def keep_conversation(
    thread_id: uuid.UUID, version: int, messages: Sequence[Message], before: int
) -> None:
    """Keep a conversation for the next claim, here and for others; the entry at `before` goes.

    The cache holds one entry per thread, of the newest messages only: it does not grow with them.
    """
    _kept.put(thread_id, version, messages)
    recent = messages[-runtime_settings().CACHED_MESSAGES :]
    cache.remember(
        thread_id,
        version,
        {
            "count": len(messages),
            "messages": [one.model_dump(mode="json", exclude_defaults=True) for one in recent],
        },
    )
    if 0 <= before != version:
        cache.forget(thread_id, before)
