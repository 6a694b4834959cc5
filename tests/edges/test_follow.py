"""Connect, drop and reconnect at any moment: none missed, none twice, in order."""

import asyncio
import json
import os
import random
import threading
import time
from typing import Any

import pytest
from django.db import connections, transaction
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agentruntime.lifecycle.record import tell
from agentruntime.models import Thread
from agentruntime.models.transactions import durably
from agentruntime.tokens import create_token
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
LAST = "test.last"


@pytest.fixture
def thread(ann) -> Thread:
    return Thread.objects.create(user=ann)


@pytest.fixture
def token(ann) -> str:
    return create_token(ann, ["read"])[1]


class Writer(threading.Thread):
    """Stores events of a thread, one every `pause` seconds, holding each commit for `delay`."""

    def __init__(self, thread: Thread, count: int, pause: float, delay: float = 0) -> None:
        super().__init__(daemon=True)
        self.place, self.count, self.pause, self.delay = thread, count, pause, delay

    def run(self) -> None:
        try:
            for number in range(self.count):
                durably(lambda n=number: self._store("test.said", n))
                time.sleep(self.pause)
        finally:
            connections.close_all()

    def _store(self, kind: str, number: int) -> None:
        with transaction.atomic():
            tell(self.place.pk, None, [(kind, {"n": number})])
            time.sleep(self.delay)


def say_last(thread: Thread) -> None:
    durably(lambda: tell(thread.pk, None, [(LAST, {})]))


async def follow(url: str, token: str, drops: int = 0, start: float = 0.0) -> list[int]:
    """Follow to the last event, coming back after each drop with the last number seen."""
    await asyncio.sleep(start)
    seen: list[int] = []
    left = drops
    while True:
        after = seen[-1] if seen else 0
        header = {"Authorization": f"Token {token}"}
        async with connect(
            f"{url}?after={after}", additional_headers=header, max_queue=4
        ) as socket:
            try:
                until = random.randint(5, 40) if left else 10**9
                async for text in socket:
                    event = json.loads(text)
                    seen.append(event["seq"])
                    if event["type"] == LAST:
                        return seen
                    until -= 1
                    if until <= 0:
                        left -= 1
                        socket.transport.abort()
                        break
            except ConnectionClosed:
                pass


async def follow_all(url: str, token: str, clients: int, drops: int, within: float) -> Any:
    work = [
        follow(url, token, drops if number % 5 == 0 else 0, random.uniform(0, within))
        for number in range(clients)
    ]
    return await asyncio.wait_for(asyncio.gather(*work), 90)


def test_a_hundred_connects_while_events_are_written(web, thread, token, redis_url):
    site = web(runtime={"SOCKETS_PER_USER": 500})
    url = site.ws(f"/ws/threads/{thread.pk}/")
    writers = [Writer(thread, 300, 0.005), Writer(thread, 40, 0.01, delay=0.03)]
    for one in writers:
        one.start()

    def disturb() -> None:
        import redis

        with redis.Redis.from_url(redis_url) as client:
            for _ in range(5):
                time.sleep(0.4)
                client.flushall()
                client.client_kill_filter(_type="pubsub")
                client.client_kill_filter(_type="normal", skipme=True)

    if "REDIS_URL" in os.environ:
        threading.Thread(target=disturb, daemon=True).start()

    def finish() -> None:
        for one in writers:
            one.join()
        say_last(thread)
        connections.close_all()

    ending = threading.Thread(target=finish, daemon=True)
    ending.start()
    found = asyncio.run(follow_all(url, token, clients=40, drops=20, within=2.0))
    ending.join()
    stored = list(thread.events.order_by("seq").values_list("seq", flat=True))
    assert stored == list(range(1, 342))
    assert all(one == stored for one in found)


def test_a_thousand_events_at_once_reach_the_slow_and_the_fast(web, thread, token):
    site = web()
    url = site.ws(f"/ws/threads/{thread.pk}/")

    async def slowly() -> list[int]:
        header = {"Authorization": f"Token {token}"}
        seen = []
        async with connect(url, additional_headers=header, max_queue=1) as socket:
            async for text in socket:
                event = json.loads(text)
                seen.append(event["seq"])
                if event["type"] == LAST:
                    return seen
                await asyncio.sleep(0.002)
        return seen

    def burst() -> None:
        durably(lambda: tell(thread.pk, None, [("test.said", {"n": n}) for n in range(1000)]))
        say_last(thread)
        connections.close_all()

    async def both() -> Any:
        threading.Timer(0.5, burst).start()
        return await asyncio.wait_for(asyncio.gather(slowly(), follow(url, token)), 60)

    slow, fast = asyncio.run(both())
    assert slow == fast == list(range(1, 1002))


def test_a_stream_over_http_follows_too(web, thread, token):
    import urllib.request

    site = web()
    threading.Timer(1.0, Writer(thread, 20, 0.01).run).start()
    threading.Timer(3.0, lambda: (say_last(thread), connections.close_all())).start()
    headers = {"Authorization": f"Token {token}", "Accept": "text/event-stream"}
    path = site.url(f"/api/v1/threads/{thread.pk}/events/")

    def read(last: int, stop_at: int) -> list[int]:
        asked = urllib.request.Request(path, headers={**headers, "Last-Event-ID": str(last)})
        seen: list[int] = []
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            for line in answer:
                if line.startswith(b"id: "):
                    seen.append(int(line[4:]))
                if seen and seen[-1] >= stop_at:
                    return seen
        return seen

    first = read(0, 7)
    assert first == list(range(1, 8))
    assert read(7, 21) == list(range(8, 22))


def test_a_client_that_never_reads_is_dropped_and_slows_nobody(web, thread, token):
    import socket as sockets

    site = web(runtime={"SOCKET_SEND_SECONDS": 2})
    header = f"Authorization: Token {token}\r\n"
    deaf = sockets.create_connection(("127.0.0.1", site.port))
    deaf.sendall(
        (
            f"GET /ws/threads/{thread.pk}/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{header}\r\n"
        ).encode()
    )
    delays: list[float] = []

    async def listen() -> None:
        url = site.ws(f"/ws/threads/{thread.pk}/")
        async with connect(url, additional_headers={"Authorization": f"Token {token}"}) as socket:
            async for text in socket:
                event = json.loads(text)
                if event["type"] == LAST:
                    return
                delays.append(time.time() - event["data"]["t"])

    def write() -> None:
        for _ in range(300):
            data = {"t": time.time(), "filling": "x" * 50_000}
            durably(lambda data=data: tell(thread.pk, None, [("test.said", data)]))
            time.sleep(0.01)
        say_last(thread)
        connections.close_all()

    threading.Timer(0.5, write).start()
    asyncio.run(asyncio.wait_for(listen(), 60))
    assert len(delays) == 300
    if "REDIS_URL" in os.environ:
        assert sorted(delays)[285] < 3.0, sorted(delays)[285]

    time.sleep(5)  # deaf for longer than it may be

    def is_dropped() -> bool:
        deaf.settimeout(0.2)
        try:
            return deaf.recv(1 << 20) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    wait_until(is_dropped, 30, "the deaf client to be dropped")
    deaf.close()


def test_events_are_kept_by_age_and_leave_no_gap(thread):
    from datetime import timedelta

    from django.utils import timezone

    from agentruntime.lifecycle import prune_events

    durably(lambda: tell(thread.pk, None, [("test.said", {"n": n}) for n in range(10)]))
    old = timezone.now() - timedelta(days=40)
    thread.events.filter(seq__in=(1, 2, 4)).update(at=old)
    assert prune_events(30) == 4
    assert list(thread.events.order_by("seq").values_list("seq", flat=True)) == list(range(5, 11))
    durably(lambda: tell(thread.pk, None, [("test.said", {})]))
    assert thread.events.latest("seq").seq == 11
