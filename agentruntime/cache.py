"""The hot copy of a thread's head, by thread and version: never stale, for an entry never changes.

JSON text only. Whatever the cache does (down, flushed, wrong) the caller reads the database.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import Any

from django.core.cache import caches

from agentruntime.conf import runtime_settings


def _key(thread_id: uuid.UUID, version: int, part: str) -> str:
    return f"agentruntime:{thread_id}:{version}:{part}"


def remember(thread_id: uuid.UUID, version: int, entry: dict[str, Any], part: str = "head") -> None:
    """Keep a JSON-like entry for this version of the thread. Never raises."""
    settings = runtime_settings()
    with suppress(Exception):  # a cache that is down costs time, nothing else
        caches[settings.CACHE_ALIAS].set(
            _key(thread_id, version, part), json.dumps(entry), settings.CACHE_SECONDS
        )


def recall(thread_id: uuid.UUID, version: int, part: str = "head") -> dict[str, Any] | None:
    """Return the entry for this version of the thread, or None. Never raises."""
    try:
        text = caches[runtime_settings().CACHE_ALIAS].get(_key(thread_id, version, part))
        entry = json.loads(text) if isinstance(text, str) else None
    except Exception:
        return None
    return entry if isinstance(entry, dict) else None
