"""Reading the stored events of threads, as watchers are shown them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Min

from agentruntime.conf import runtime_settings
from agentruntime.graph.masking import mask
from agentruntime.models import Event, Thread

PAGE = 200


class Row(NamedTuple):
    """One stored event: its number, its run, and the JSON text that every watcher is sent."""

    seq: int
    run_id: uuid.UUID | None
    type: str
    text: str


def event_body(event: Event) -> dict[str, Any]:
    """Return an event as REST, sockets and streams show it; secret fields are masked."""
    return {
        "seq": event.seq,
        "type": event.type,
        "run": str(event.run_id) if event.run_id else None,
        "thread": str(event.thread_id),
        "at": as_text(event.at),
        "data": mask(event.data, runtime_settings().SECRET_FIELDS),
    }


def as_text(moment: datetime) -> str:
    """Return a moment as the API writes it."""
    return moment.isoformat().replace("+00:00", "Z")


def read_rows(thread_id: uuid.UUID, after: int, limit: int = PAGE) -> list[Row]:
    """Return the next stored events of a thread after the number `after`, in order."""
    found = Event.objects.filter(thread_id=thread_id, seq__gt=after).order_by("seq")[:limit]
    return [Row(one.seq, one.run_id, one.type, json.dumps(event_body(one))) for one in found]


def read_heads(thread_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the newest number of each of these threads; a deleted one is missing."""
    ids = list(thread_ids)
    heads: dict[uuid.UUID, int] = {}
    for start in range(0, len(ids), 500):
        some = Thread.objects.filter(pk__in=ids[start : start + 500])
        heads.update(some.values_list("pk", "event_count"))
    return heads


def oldest_seq(thread_id: uuid.UUID) -> int | None:
    """Return the oldest number that is still stored; None where there is no event."""
    found: int | None = Event.objects.filter(thread_id=thread_id).aggregate(Min("seq"))["seq__min"]
    return found


def lost_place(thread_id: uuid.UUID, last: int) -> tuple[int, dict[str, Any]] | None:
    """Return from where a watcher who has seen `last` goes on, and what to tell of it; None where
    the place is still there.

    It is gone where the events after it were deleted with age, or where it never was: the client
    saw another database.
    """
    oldest = oldest_seq(thread_id)
    newest = read_heads([thread_id]).get(thread_id, 0)
    too_old = oldest is not None and last + 1 < oldest
    if not too_old and last <= newest:
        return None
    place = oldest - 1 if oldest is not None and too_old else newest
    return place, {"type": "resync", "oldest": oldest, "newest": newest}
