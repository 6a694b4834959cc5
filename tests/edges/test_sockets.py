"""Who may open a socket, how it ends when they may no longer, and what it never does."""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from agentruntime.lifecycle import delete_thread, start_run
from agentruntime.lifecycle.record import tell
from agentruntime.models import Run, Thread
from agentruntime.tokens import create_token
from tests.edges.communicator import Socket

pytestmark = pytest.mark.django_db(transaction=True)
in_thread = sync_to_async
IDLE_SOCKETS = 50  # one user's at most


@asynccontextmanager
async def socket(path: str, *headers: tuple[bytes, bytes], **options: Any) -> AsyncIterator[Socket]:
    from config.asgi import application

    made = Socket(application, path, headers, **options)
    await made.connect()
    try:
        yield made
    finally:
        await made.leave()


async def closed_with(made: Socket, timeout: float = 10) -> int:
    while True:
        message = await made.receive_output(timeout)
        if message["type"] == "websocket.close":
            return int(message["code"])


def cookie(user: Any) -> tuple[bytes, bytes]:
    client = Client()
    client.force_login(user)
    return b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()


def bearer(user: Any, *scopes: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Token {create_token(user, scopes or ('read',))[1]}".encode()


@pytest.fixture
def thread(runtime, ann) -> Thread:
    runtime(SOCKET_RECHECK_SECONDS=0.2, SOCKET_POLL_SECONDS=0.2)
    return Thread.objects.create(user=ann)


@pytest.fixture
def say(thread) -> Any:
    """Stores an event of the thread, committed as any other."""
    from agentruntime.models.transactions import durably

    return lambda number: durably(lambda: tell(thread.pk, None, [("test.said", {"n": number})]))


async def test_a_socket_replays_then_goes_on(ann, thread, say):
    for number in (1, 2, 3):
        await in_thread(say)(number)
    async with socket(f"/ws/threads/{thread.pk}/?after=1", await in_thread(bearer)(ann)) as made:
        assert [(await made.hear())["seq"] for _ in range(2)] == [2, 3]
        await in_thread(say)(4)
        event = await made.hear()
        assert event.keys() == {"seq", "type", "run", "thread", "at", "data"}
        assert (event["seq"], event["data"], event["thread"]) == (4, {"n": 4}, str(thread.pk))


async def test_a_socket_of_a_run_tells_of_that_run_only(ann, thread, say, echo):
    first = await in_thread(start_run)(graph=echo, input="a", thread_id=thread.pk, user=ann)
    await in_thread(say)(1)
    async with socket(f"/ws/runs/{first.pk}/", await in_thread(bearer)(ann)) as made:
        kinds = [(await made.hear())["type"] for _ in range(2)]
        assert kinds == ["run.queued", "message.added"]
        assert await made.receive_nothing(0.5)


@pytest.mark.parametrize(
    "way", ["nobody", "a wrong token", "a token without read", "a dead session"]
)
async def test_who_is_not_known_is_4401(ann, thread, way):
    headers = {
        "nobody": (),
        "a wrong token": ((b"authorization", b"Token abc"),),
        "a token without read": (await in_thread(bearer)(ann, "decide"),),
        "a dead session": ((b"cookie", b"sessionid=abcdefghijklmnop"),),
    }[way]
    async with socket(f"/ws/threads/{thread.pk}/", *headers) as made:
        assert await closed_with(made) == 4401


@pytest.mark.parametrize("path", ["/", "/ws/nope/", "/ws/threads/1/"])
async def test_an_address_that_there_is_not_is_4404_and_no_fault(ann, path):
    async with socket(path, await in_thread(bearer)(ann)) as made:
        message = await made.receive_output(5)
        assert (message["type"], message["code"]) == ("websocket.close", 4404)
        assert message["reason"]


async def test_a_close_says_why(ann, thread):
    async with socket(f"/ws/threads/{thread.pk}/?after=x", await in_thread(bearer)(ann)) as made:
        assert "`after`" in (await made.receive_output(5))["reason"]


@pytest.mark.parametrize("path", ["/ws/threads/{}/", "/ws/runs/{}/"])
async def test_what_is_not_theirs_is_4404_as_what_is_not_there(ann, bob, thread, echo, path):
    run = await in_thread(start_run)(graph=echo, input="a", thread_id=thread.pk, user=ann)
    known = run.pk if "runs" in path else thread.pk
    for ident in (known, uuid.uuid4()):
        async with socket(path.format(ident), await in_thread(bearer)(bob)) as made:
            assert await closed_with(made) == 4404


@pytest.mark.parametrize(
    ("origin", "opens"),
    [
        (b"https://evil.example", False),
        (b"http://localhost.evil.example", False),
        (b"null", False),
        (b"file://", False),
        (b"http://localhost:8000", True),
        (None, True),
    ],
)
async def test_only_this_site_may_use_the_cookie(ann, thread, say, origin, opens):
    await in_thread(say)(1)
    headers = [await in_thread(cookie)(ann), (b"host", b"localhost:8000")]
    if origin is not None:
        headers.append((b"origin", origin))
    async with socket(f"/ws/threads/{thread.pk}/", *headers) as made:
        assert made.opened is opens
        if opens:
            assert (await made.hear())["seq"] == 1


async def test_a_token_comes_as_a_subprotocol_too_and_is_not_sent_back(ann, thread, say):
    await in_thread(say)(1)
    _, text = await in_thread(create_token)(ann, ["read"])
    protocols = ["agentruntime.v1", f"token.{text}"]
    async with socket(f"/ws/threads/{thread.pk}/", subprotocols=protocols) as made:
        assert made.subprotocol == "agentruntime.v1"
        assert (await made.hear())["seq"] == 1


async def test_a_token_in_the_address_is_none(ann, thread):
    _, text = await in_thread(create_token)(ann, ["read"])
    async with socket(f"/ws/threads/{thread.pk}/?token={text}") as made:
        assert await closed_with(made) == 4401


def log_out(user: Any, thread: Thread) -> None:
    from django.contrib.sessions.models import Session

    Session.objects.all().delete()


def deactivate(user: Any, thread: Thread) -> None:
    type(user).objects.filter(pk=user.pk).update(is_active=False)


def change_password(user: Any, thread: Thread) -> None:
    user.set_password("another-1")
    user.save()


def give_away(user: Any, thread: Thread) -> None:
    Thread.objects.filter(pk=thread.pk).update(user=None)


def delete(user: Any, thread: Thread) -> None:
    delete_thread(thread_id=thread.pk)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (log_out, 4401),
        (deactivate, 4401),
        (change_password, 4401),
        (give_away, 4404),
        (delete, 4404),
    ],
)
async def test_a_right_that_ends_ends_the_socket(ann, thread, say, change, code):
    await in_thread(say)(1)
    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(cookie)(ann)) as made:
        assert (await made.hear())["seq"] == 1
        await in_thread(change)(ann, thread)
        assert await closed_with(made) == code
        if change is not delete:
            await in_thread(say)(2)
        assert await made.receive_nothing(0.5), await made.receive_output()


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_token_that_ends_ends_the_socket(ann, thread, say, how):
    from django.utils import timezone
    from knox.models import get_token_model

    await in_thread(say)(1)
    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(ann)) as made:
        assert (await made.hear())["seq"] == 1
        tokens = get_token_model().objects
        await in_thread(
            tokens.all().delete
            if how == "revoked"
            else lambda: tokens.update(expiry=timezone.now())
        )()
        assert await closed_with(made) == 4401


async def test_the_right_to_view_the_tenants_threads_can_be_lost(person, thread, say):
    rea = await in_thread(person)("rea", "agentruntime.view_thread")
    await in_thread(say)(1)
    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(rea)) as made:
        assert (await made.hear())["seq"] == 1
        await in_thread(rea.user_permissions.clear)()
        assert await closed_with(made) == 4404


async def test_the_socket_takes_no_orders(ann, thread, echo):
    run = await in_thread(start_run)(graph=echo, input="a", thread_id=thread.pk, user=ann)
    async with socket(f"/ws/runs/{run.pk}/?after=9", await in_thread(bearer)(ann)) as made:
        for order in ({"type": "stop", "run": str(run.pk)}, {"type": "thread.news"}, []):
            await made.say(json.dumps(order))
        await made.say(b"\xff\x00")
    assert (await in_thread(Run.objects.get)(pk=run.pk)).status == "queued"


async def test_what_a_client_sends_is_bounded(ann, thread):
    header = await in_thread(bearer)(ann)
    async with socket(f"/ws/threads/{thread.pk}/", header) as made:
        await made.say("x" * 5000)
        assert await closed_with(made) == 1009
    async with socket(f"/ws/threads/{thread.pk}/", header) as made:
        for _ in range(40):
            await made.say("x")
        assert await closed_with(made) == 4429


async def test_sockets_per_user_are_bounded(ann, bob, thread, runtime):
    runtime(SOCKETS_PER_USER=2)
    header = await in_thread(bearer)(ann)
    path = f"/ws/threads/{thread.pk}/"
    async with socket(path, header), socket(path, header), socket(path, header) as third:
        assert await closed_with(third) == 4429
    async with socket(path, header) as again:
        assert await again.receive_nothing(0.3)


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 30, "1.5", "%00"])
async def test_a_place_that_is_no_number_is_refused(ann, thread, after):
    path = f"/ws/threads/{thread.pk}/?after={after}"
    async with socket(path, await in_thread(bearer)(ann)) as made:
        assert await closed_with(made) == 4400


async def test_a_place_that_is_gone_is_told(ann, thread, say):
    for number in range(1, 6):
        await in_thread(say)(number)
    await in_thread(thread.events.filter(seq__lte=3).delete)()
    header = await in_thread(bearer)(ann)
    async with socket(f"/ws/threads/{thread.pk}/?after=1", header) as made:
        assert await made.hear() == {"type": "resync", "oldest": 4, "newest": 5}
        assert [(await made.hear())["seq"] for _ in range(2)] == [4, 5]
    async with socket(f"/ws/threads/{thread.pk}/?after=99", header) as made:
        assert (await made.hear())["type"] == "resync"
        await in_thread(say)(6)
        assert (await made.hear())["seq"] == 6


async def test_live_text_passes_through_and_is_not_stored(ann, thread, say):
    from agentruntime.signals import progressed

    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(ann)) as made:
        await in_thread(say)(1)
        assert (await made.hear())["seq"] == 1
        odd = {"text": "hel", "set": {1}, 3: None, "id": uuid.UUID(int=1)}
        for data in (odd, {"bad": float("nan")}, {("a", "tuple"): 1}):
            await in_thread(progressed.send)(
                None, thread_id=thread.pk, run_id=uuid.uuid4(), type="message.delta", data=data
            )
        shown = [await made.hear() for _ in range(3)]
        assert {one["type"] for one in shown} == {"message.delta"}
        assert all("seq" not in one for one in shown)
        assert shown[0]["data"]["text"] == "hel"
        json.dumps(shown, allow_nan=False)
        assert await in_thread(thread.events.count)() == 1


async def test_live_text_stands_between_the_events_that_it_came_between(ann, thread, say):
    """Also where all of it is told at once, and to who catches up meanwhile."""
    from agentruntime.signals import progressed

    def at_once():
        run = uuid.uuid4()
        for number in range(1, 5):
            say(number)
            for text in "ab":
                data = {"text": f"{number}{text}"}
                progressed.send(
                    None, thread_id=thread.pk, run_id=run, type="message.delta", data=data
                )

    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(ann)) as made:
        await in_thread(say)(0)
        assert (await made.hear())["seq"] == 1
        await in_thread(at_once)()
        heard = [(await made.hear())["data"] for _ in range(12)]
    assert [one.get("text", one.get("n")) for one in heard] == [
        1, "1a", "1b", 2, "2a", "2b", 3, "3a", "3b", 4, "4a", "4b",
    ]  # fmt: skip


@pytest.mark.slow
async def test_seconds_to_silence_with_the_default_settings(ann, person, thread, runtime):
    import asyncio
    import time

    runtime()
    seconds: dict[str, float] = {}

    async def watch(change: Any) -> None:
        user = await in_thread(person)(change.__name__)
        own = await in_thread(Thread.objects.create)(user=user)
        async with socket(f"/ws/threads/{own.pk}/", await in_thread(cookie)(user)) as made:
            assert await made.receive_nothing(0.1)
            began = time.monotonic()
            await in_thread(change)(user, own)
            await closed_with(made, timeout=10)
            seconds[change.__name__] = round(time.monotonic() - began, 1)

    # The logout comes last: it is everybody's.
    await asyncio.gather(*map(watch, (deactivate, change_password, give_away, delete)))
    await watch(log_out)
    print(f"\nseconds to silence: {seconds}")


@pytest.mark.parametrize(
    ("right", "is_staff", "sees"),
    [
        ("agentruntime.view_run", True, True),
        ("agentruntime.view_run", False, False),
        ("agentruntime.view_event", True, False),
    ],
)
async def test_whom_the_admin_shows_a_run_may_watch_it(
    person, thread, echo, ann, right, is_staff, sees
):
    run = await in_thread(start_run)(graph=echo, input="a", thread_id=thread.pk, user=ann)
    sta = await in_thread(person)("sta", right, is_staff=is_staff)
    header = await in_thread(cookie)(sta)
    page = f"/admin/agentruntime/run/{run.pk}/live/news/"

    def looks() -> int:
        client = Client()
        client.force_login(sta)
        return int(client.get(page).status_code)

    assert (await in_thread(looks)() == 200) is sees
    async with socket(f"/ws/runs/{run.pk}/", header) as made:
        if sees:
            assert (await made.hear())["seq"] == 1
            await in_thread(sta.user_permissions.clear)()
        assert await closed_with(made) == 4404
    async with socket(f"/ws/threads/{thread.pk}/", header) as made:
        assert await closed_with(made) == 4404, "the admin's page is about one run"


async def test_news_come_after_the_commit_and_never_without_it(ann, thread):
    import threading

    from django.db import connections, transaction

    from agentruntime.models.transactions import durably

    told, go_on = threading.Event(), threading.Event()

    def store(number: int, fails: bool) -> None:
        def work() -> None:
            tell(thread.pk, None, [("test.said", {"n": number})])
            told.set()
            assert go_on.wait(10)
            if fails:
                transaction.set_rollback(True)

        durably(work)
        connections.close_all()

    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(ann)) as made:
        for number, fails in ((1, True), (2, False)):
            told.clear(), go_on.clear()
            writer = threading.Thread(target=store, args=(number, fails))
            writer.start()
            assert await sync_to_async(told.wait, thread_sensitive=False)(10)
            assert await made.receive_nothing(0.3), "it is not committed yet"
            go_on.set()
            await sync_to_async(writer.join, thread_sensitive=False)(10)
        event = await made.hear()
        assert (event["seq"], event["data"]) == (1, {"n": 2})


async def test_who_comes_after_the_end_is_told_of_it(ann, thread, echo, work):
    run = await in_thread(start_run)(graph=echo, input="hi", thread_id=thread.pk, user=ann)
    await in_thread(work)(run.pk)
    async with socket(f"/ws/runs/{run.pk}/", await in_thread(bearer)(ann)) as made:
        kinds = []
        while not kinds or not kinds[-1].startswith("run.completed"):
            kinds.append((await made.hear())["type"])
        assert kinds[0] == "run.queued"
        assert await made.receive_nothing(0.3)


async def test_a_slow_read_of_one_holds_up_nobody_and_takes_few_connections(ann, thread, say):
    """Two hundred idle sockets, and somebody's query that takes long: the others do not notice."""
    import asyncio
    import time

    from django.db import connection

    from agentruntime import feeds

    def in_use() -> set[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
            return {row[0] for row in cursor.fetchall()}

    header = await in_thread(bearer)(ann)
    async with contextlib.AsyncExitStack() as stack:
        path = f"/ws/threads/{thread.pk}/"
        opened = [
            await stack.enter_async_context(socket(path, header)) for _ in range(IDLE_SOCKETS)
        ]
        slow = asyncio.ensure_future(feeds.in_pool(time.sleep, 2))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await in_thread(say)(1)
        heard = await asyncio.gather(*(made.hear(5) for made in opened))
        assert [one["seq"] for one in heard] == [1] * IDLE_SOCKETS
        assert not slow.done(), f"they waited {time.monotonic() - began:.1f} s for it"
        if connection.vendor == "postgresql":
            assert len(await in_thread(in_use)()) <= feeds.POOL_THREADS + 8
        await slow


@pytest.mark.database("postgresql")
async def test_sockets_go_on_after_their_connections_were_cut(ann, thread, say):
    import asyncio
    import time

    from django.db import connection

    from agentruntime import feeds

    def own_pid() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            found = cursor.fetchone()[0]
        time.sleep(0.1)  # so that each thread of the pool is asked
        return int(found)

    def cut(pids: set[int]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", [list(pids)])

    async with socket(f"/ws/threads/{thread.pk}/", await in_thread(bearer)(ann)) as made:
        await in_thread(say)(1)
        assert (await made.hear())["seq"] == 1
        asked = (feeds.in_pool(own_pid) for _ in range(feeds.POOL_THREADS))
        await in_thread(cut)(set(await asyncio.gather(*asked)))
        await in_thread(say)(2)
        assert (await made.hear(10))["seq"] == 2
