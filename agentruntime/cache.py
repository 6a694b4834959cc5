"""The hot copy of a thread's head, by thread and version: never stale, for an entry never changes.

JSON text only. Whatever the cache does (down, flushed, wrong) the caller reads the database.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.cache import BaseCache, caches

from agentruntime.conf import runtime_settings

SLOW_SECONDS = 0.5
SILENT_SECONDS = 5.0

_silent_until = 0.0


def _key(thread_id: uuid.UUID, version: int, part: str) -> str:
    return f"agentruntime:{thread_id}:{version}:{part}"


def remember(thread_id: uuid.UUID, version: int, entry: dict[str, Any], part: str = "head") -> None:
    """Keep a JSON-like entry for this version of the thread. Never raises."""
    with suppress(Exception), _watched() as cache:
        cache.set(
            _key(thread_id, version, part), json.dumps(entry), runtime_settings().CACHE_SECONDS
        )


def recall(thread_id: uuid.UUID, version: int, part: str = "head") -> dict[str, Any] | None:
    """Return the entry for this version of the thread, or None. Never raises."""
    entry = None
    with suppress(Exception), _watched() as cache:
        text = cache.get(_key(thread_id, version, part))
        entry = json.loads(text) if isinstance(text, str) else None
    return entry if isinstance(entry, dict) else None


def forget(thread_id: uuid.UUID, version: int, part: str = "head") -> None:
    """Drop an entry. Never raises; one that stays expires by itself."""
    with suppress(Exception), _watched() as cache:
        cache.delete(_key(thread_id, version, part))


@contextmanager
def _watched() -> Iterator[BaseCache]:
    """Give the cache, and leave it alone for a while if it took long: a server that hangs must not
    cost each step its time-out.
    """
    global _silent_until
    begun = time.monotonic()
    if begun < _silent_until:
        raise TimeoutError
    try:
        yield caches[runtime_settings().CACHE_ALIAS]
    finally:
        ended = time.monotonic()
        if ended - begun > SLOW_SECONDS:
            _silent_until = ended + SILENT_SECONDS
