"""`/ws/approvals/`: who may listen, what is told, and that nothing is decided there."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from channels.db import database_sync_to_async
from django.test import Client

from agentruntime import events
from agentruntime.models import Event
from approvals import live
from approvals.decide import decide
from approvals.models import Decision
from tests.edges.communicator import Socket

pytestmark = pytest.mark.django_db(transaction=True)
# Gives its connection back: the database of a test is dropped in the end.
in_thread = database_sync_to_async


@pytest.fixture(autouse=True)
def _impatient(_work_by_hand, settings):
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "SOCKET_RECHECK_SECONDS": 0.2}


def cookie(user):
    client = Client()
    client.force_login(user)
    return b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()


@asynccontextmanager
async def socket(*headers, after=None):
    from config.asgi import application

    query = "" if after is None else f"?after={after}"
    made = Socket(application, f"/ws/approvals/{query}", headers)
    await made.connect()
    try:
        yield made
    finally:
        await made.leave()


async def closed_with(made):
    while True:
        message = await made.receive_output(10)
        if message["type"] == "websocket.close":
            return message["code"]


async def test_without_a_login_it_closes_with_4401(db):
    async with socket() as one:
        assert await closed_with(one) == 4401


async def test_without_a_right_it_closes_with_4403(ask, alice, person):
    stranger = await in_thread(person)("stranger")
    for user in (alice, stranger):
        async with socket(await in_thread(cookie)(user)) as one:
            assert await closed_with(one) == 4403


async def test_it_tells_what_is_asked_and_decided_once(ask, bob):
    async with socket(await in_thread(cookie)(bob)) as one:
        await asyncio.sleep(0.2)
        approval = await in_thread(ask)()
        asked = await one.hear()
        await in_thread(decide)(approval_id=approval.pk, verdict="decline", user=bob, reason="no")
        told = await one.hear()
        assert (asked["type"], told["type"]) == ("approval.requested", "approval.decided")
        assert asked["data"]["approval"] == told["data"]["approval"] == str(approval.pk)
        assert set(asked) == {"seq", "type", "run", "thread", "at", "data"}
        assert told["data"]["by"] == "bob"
        assert "arguments" not in asked["data"]
        assert await one.receive_nothing(0.3)


@pytest.mark.parametrize("way", ["by a hint", "by a look, where hints are lost"])
async def test_news_come(ask, bob, settings, monkeypatch, way):
    patient = 60 if way == "by a hint" else 0.1
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "SOCKET_POLL_SECONDS": patient}
    if patient < 1:
        monkeypatch.setattr(live.events, "hint", lambda topic: None)
    async with socket(await in_thread(cookie)(bob)) as one:
        assert await one.receive_nothing(0.2)
        await in_thread(ask)()
        assert (await one.hear(4))["type"] == "approval.requested"


async def test_a_hint_reaches_other_processes_over_the_channel_layer(ask, bob, monkeypatch):
    """What another process sends is taken from the layer, not from this process's publisher."""
    from agentruntime import hub

    told = events.as_message(events.News(live.TOPIC))
    told["process"] = "another"
    layer = OneMessage(told)
    monkeypatch.setattr(hub, "_shared_layer", lambda: layer)
    async with hub.Hub().hints(live.TOPIC) as news, asyncio.timeout(4):
        await news.wait()
    assert events.group_name(live.TOPIC) in layer.groups


class OneMessage:
    """A channel layer that has one message for whoever asks."""

    def __init__(self, message):
        self.message, self.groups = message, []

    async def new_channel(self):
        return "here"

    async def group_add(self, group, channel):
        self.groups.append(group)

    async def group_discard(self, group, channel):
        pass

    async def receive(self, channel):
        while self.message is None:
            await asyncio.sleep(1)
        found, self.message = self.message, None
        return found


async def test_after_brings_what_was_missed_and_nothing_twice(ask, bob, alice, person):
    first = await in_thread(ask)()
    at = (await in_thread(Event.objects.get)(type="approval.requested")).at
    await in_thread(decide)(approval_id=first.pk, verdict="decline", user=bob, reason="no")
    header = await in_thread(cookie)(bob)
    async with socket(header, after=at.isoformat()) as one:
        assert [(await one.hear())["type"] for _ in range(2)] == [
            "approval.requested",  # of the very instant that is named
            "approval.decided",
        ]
        await in_thread(ask)()
        assert (await one.hear())["type"] == "approval.requested"
        assert await one.receive_nothing(0.3)
    stranger = await in_thread(person)("other", "approvals.decide_approval")
    async with socket(await in_thread(cookie)(stranger), after=at.isoformat()) as one:
        assert await one.receive_nothing(0.3)
    for wrong in ("x", "7", "2026-01-01", "2026-01-01T10:00:00", "2026-99-01T10:00:00Z", "%00"):
        async with socket(header, after=wrong) as one:
            assert await closed_with(one) == 4400, wrong
    for far in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        async with socket(header, after=far) as one:
            assert one.opened
            assert far.startswith("9") or (await one.hear())["type"] == "approval.requested"


async def test_it_is_bounded_as_every_socket(ask, bob, settings):
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "SOCKETS_PER_USER": 1}
    header = await in_thread(cookie)(bob)
    async with socket(header) as one:
        assert await one.receive_nothing(0.3), "it is counted by now"
        async with socket(header) as two:
            assert await closed_with(two) == 4429
        await one.say("x" * 5000)
        assert await closed_with(one) == 1009


async def test_it_tells_nobody_of_what_they_may_not_decide(ask, bob, person):
    other = await in_thread(person)("other", "approvals.decide_approval")
    async with socket(await in_thread(cookie)(other)) as one:
        await in_thread(ask)()
        assert await one.receive_nothing(0.5)


async def test_who_loses_the_right_is_let_go(ask, bob):
    async with socket(await in_thread(cookie)(bob)) as one:
        await in_thread(bob.user_permissions.clear)()
        assert await closed_with(one) == 4403


async def test_nothing_is_decided_over_it(ask, bob):
    approval = await in_thread(ask)()
    async with socket(await in_thread(cookie)(bob)) as one:
        order = {"approval": str(approval.pk), "verdict": "approve", "digest": approval.digest}
        await one.say(json.dumps(order))
        await asyncio.sleep(0.2)
    assert not await in_thread(Decision.objects.exists)()


def log_out(user):
    from django.contrib.sessions.models import Session

    Session.objects.all().delete()


def deactivate(user):
    type(user).objects.filter(pk=user.pk).update(is_active=False)


def take_the_right(user):
    user.user_permissions.clear()


@pytest.mark.parametrize(
    ("change", "code"), [(log_out, 4401), (deactivate, 4401), (take_the_right, 4403)]
)
async def test_a_right_that_ends_ends_the_socket(ask, bob, change, code):
    async with socket(await in_thread(cookie)(bob)) as one:
        assert await one.receive_nothing(0.1)
        await in_thread(change)(bob)
        assert await closed_with(one) == code
        await in_thread(ask)()
        assert await one.receive_nothing(0.3)
