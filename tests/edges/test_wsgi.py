"""Server-sent events where a stream holds a thread (WSGI): read in turns, checked, and bounded."""

import json
from typing import Any

import pytest

from agentruntime import streams
from agentruntime.lifecycle import delete_thread
from agentruntime.lifecycle.record import tell
from agentruntime.models import Thread
from agentruntime.models.transactions import durably

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def thread(runtime, ann, monkeypatch) -> Thread:
    monkeypatch.setattr(streams, "WSGI_SECONDS", 0.6)
    monkeypatch.setattr(streams, "WSGI_PAUSE_SECONDS", 0.02)
    return Thread.objects.create(user=ann)


def say(thread: Thread, number: int) -> None:
    durably(lambda: tell(thread.pk, None, [("test.said", {"n": number})]))


def open_stream(client: Any, thread: Thread, **headers: str) -> Any:
    """Returns the frames as they come, without the comments."""
    path = f"/api/v1/threads/{thread.pk}/events/"
    answer = client.get(path, HTTP_ACCEPT="text/event-stream", **headers)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/event-stream"
    for frame in answer.streaming_content:
        if not frame.startswith(b"retry:"):
            fields = dict(line.split(": ", 1) for line in frame.decode().strip().splitlines())
            yield {**json.loads(fields["data"]), "id": fields.get("id")}


def test_it_replays_goes_on_and_ends_so_that_the_client_comes_back(ann, api, thread):
    say(thread, 1)
    say(thread, 2)
    stream = open_stream(api(ann), thread, HTTP_LAST_EVENT_ID="1")
    assert next(stream)["id"] == "2"
    say(thread, 3)
    assert [one["seq"] for one in stream] == [3]


@pytest.mark.parametrize("change", ["gone", "inactive"])
def test_it_says_nothing_more_once_the_right_is_lost(ann, api, thread, change, monkeypatch):
    from agentruntime import credentials

    monkeypatch.setattr(credentials, "SAME_LOOK_SECONDS", 0)
    say(thread, 1)
    stream = open_stream(api(ann), thread)
    assert next(stream)["seq"] == 1
    if change == "gone":
        delete_thread(thread_id=thread.pk)
    else:
        type(ann).objects.update(is_active=False)
        say(thread, 2)
    assert list(stream) == []


def test_a_place_that_is_gone_is_told(ann, api, thread):
    for number in range(1, 5):
        say(thread, number)
    thread.events.filter(seq__lte=2).delete()
    frames = list(open_stream(api(ann), thread))
    assert [(one["type"], one.get("seq")) for one in frames] == [
        ("resync", None), ("test.said", 3), ("test.said", 4),
    ]  # fmt: skip


def test_streams_of_one_user_are_bounded(ann, api, thread, runtime):
    runtime(SOCKETS_PER_USER=1)
    say(thread, 1)
    client = api(ann)
    first = open_stream(client, thread)
    next(first)
    path = f"/api/v1/threads/{thread.pk}/events/"
    assert client.get(path, HTTP_ACCEPT="text/event-stream").status_code == 429
    first.close()
