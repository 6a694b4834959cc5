"""What happens to approvals, told to watchers: a hint after the commit, and one reader per process.

The hint says only that there is something to read. The reader looks at the stored events of the
approvals that were asked or closed lately, and looks now and then without a hint too.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from agentruntime import events
from agentruntime.conf import runtime_settings
from agentruntime.feeds import in_pool
from agentruntime.hub import hub
from agentruntime.models import Event
from agentruntime.signals import committed
from approvals.models import Approval, Status

TYPES = frozenset(("approval.requested", "approval.decided", "approval.expired"))
TOPIC = uuid.uuid5(uuid.NAMESPACE_OID, "approvals")
LATE_SECONDS = 60
MAX_KNOWN = 5_000
MAX_WAITING = 500


@receiver(committed, dispatch_uid="approvals.live")
def give_hint(*, types: Iterable[str], **_: object) -> None:
    """Tell the readers of all processes that something happened to an approval."""
    if not TYPES.isdisjoint(types):
        events.hint(TOPIC)


def events_since(moment: datetime) -> list[Event]:
    """Return what happened to approvals since a moment, in the order in which it was stored."""
    closed = [status for status in Status.values if status != Status.PENDING]
    lately = Approval.objects.filter(
        Q(created_at__gte=moment) | Q(status__in=closed, closed_at__gte=moment)
    ).order_by()
    threads = set(lately.values_list("thread_id", flat=True)[:MAX_KNOWN])
    rows = Event.objects.filter(thread_id__in=threads, type__in=TYPES, at__gte=moment)
    return list(rows.order_by("id")[:MAX_KNOWN])


class Reader:
    """Reads new events about approvals for all sockets of one event loop, while one is open."""

    def __init__(self) -> None:
        self.queues: set[asyncio.Queue[Event]] = set()
        # Numbers are given before commits, so a later number may be seen earlier: a window of time
        # is read again and what was told already is left out.
        self.known: OrderedDict[int, None] = OrderedDict()
        self.task: asyncio.Task[None] | None = None

    async def join(self) -> asyncio.Queue[Event]:
        """Return a queue of what happens from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue(MAX_WAITING)
        if self.task is None or self.task.done():
            self._new(await in_pool(_recent))
            self.task = asyncio.create_task(self._work())
        self.queues.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[Event]) -> None:
        self.queues.discard(queue)
        if not self.queues and self.task is not None:
            self.task.cancel()
            self.task = None

    async def _work(self) -> None:
        async with hub().hints(TOPIC) as news:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(runtime_settings().SOCKET_POLL_SECONDS):
                        await news.wait()
                news.clear()
                with contextlib.suppress(Exception):  # the database is away: the next look finds it
                    for event in self._new(await in_pool(_recent)):
                        self._tell(event)

    def _new(self, found: Sequence[Event]) -> list[Event]:
        fresh = [event for event in found if event.pk not in self.known]
        self.known.update(dict.fromkeys(event.pk for event in fresh))
        while len(self.known) > 2 * MAX_KNOWN:
            self.known.popitem(last=False)
        return fresh

    def _tell(self, event: Event) -> None:
        for queue in self.queues:
            if queue.full():  # a slow one misses news; its page asks for the whole anyway
                queue.get_nowait()
            queue.put_nowait(event)


def _recent() -> list[Event]:
    return events_since(timezone.now() - timedelta(seconds=LATE_SECONDS))


_readers: dict[asyncio.AbstractEventLoop, Reader] = {}


def reader() -> Reader:
    """Return the reader of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _readers:
        for closed in [one for one in _readers if one.is_closed()]:
            del _readers[closed]
        _readers[loop] = Reader()
    return _readers[loop]
