"""`/ws/approvals/`: what happens to the approvals that a person may see, as it happens; read-only.

`?after=MOMENT` (the `at` of the last event that was seen) brings first what was stored since. An
event of the same instant may then come again: `thread` and `seq` name it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import parse_qs

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from agentruntime.credentials import NOT_ALLOWED, NOT_AUTHENTICATED, user_of
from agentruntime.feeds import in_pool
from agentruntime.models import Event
from agentruntime.sockets import WatchingSocket
from agentruntime.stored_events import event_body
from approvals.live import events_since, reader
from approvals.models import Approval
from approvals.permissions import rights_of, visible_to
from approvals.queue import may_open_queue

BAD_REQUEST = 4400
OVERLAP_SECONDS = 5
"""Events get their time before their commit: so much is read again before the moment named."""
MAX_DAYS = 7


class ApprovalEvents(WatchingSocket):
    """One socket of one person who may open the queue."""

    async def prepare(self) -> int | None:
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        self.after: datetime | None = None
        if "after" in query:
            self.after = read_moment(query["after"][-1])
            if self.after is None:
                return BAD_REQUEST
        code: int | None = await in_pool(self.refused_now)
        return code

    def refused_now(self) -> int | None:
        user = user_of(self.credential)
        if user is None:
            return NOT_AUTHENTICATED
        return None if may_open_queue(rights_of(user)) else NOT_ALLOWED

    async def watch(self) -> None:
        queue = await reader().join()
        try:
            told: set[int] = set()
            if self.after is not None:
                before = await in_pool(events_since, self.after)
                told = {event.pk for event in before}
                await self._tell(before)
            while True:
                event = await queue.get()
                if event.pk not in told:
                    await self._tell([event])
        finally:
            reader().leave(queue)

    async def _tell(self, events: Sequence[Event]) -> None:
        for event in await in_pool(self._visible, events):
            if not await self.send_text(json.dumps(event_body(event))):
                await asyncio.Event().wait()  # it is being closed: say nothing more

    def _visible(self, events: Sequence[Event]) -> list[Event]:
        """Return those that are about approvals which the person may see at this moment."""
        rights = rights_of(self.credential.user_id)
        wanted = {event.data.get("approval") for event in events}
        seen = Approval.objects.filter(visible_to(rights, own=False), pk__in=wanted)
        ids = {str(one) for one in seen.values_list("pk", flat=True)}
        return [event for event in events if event.data.get("approval") in ids]


def read_moment(text: str) -> datetime | None:
    """Return since when events are wanted, with some overlap; None for what is no such moment."""
    try:
        found = parse_datetime(text.replace(" ", "+"))  # a plus that was not escaped
    except ValueError:
        return None
    if found is None or found.tzinfo is None:
        return None
    now = timezone.now()
    found = max(now - timedelta(days=MAX_DAYS), min(found, now))
    return found - timedelta(seconds=OVERLAP_SECONDS)
