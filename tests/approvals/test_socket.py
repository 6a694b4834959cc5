"""`/ws/approvals/`: who may listen, what is told, and that nothing is decided there."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from channels.db import database_sync_to_async
from django.test import Client

from approvals import consumers
from approvals.decide import decide
from approvals.models import Decision
from tests.edges.communicator import Socket

pytestmark = pytest.mark.django_db(transaction=True)
# Gives its connection back: the database of a test is dropped in the end.
in_thread = database_sync_to_async


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "CHECK_SECONDS", 0.2)


def cookie(user):
    client = Client()
    client.force_login(user)
    return b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()


@asynccontextmanager
async def socket(*headers):
    from config.asgi import application

    made = Socket(application, "/ws/approvals/", headers)
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
