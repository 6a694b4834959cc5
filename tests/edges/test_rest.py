"""The REST API keeps its bodies, its statuses and its promises."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from rest_framework.test import APIClient

from agentruntime.models import Checkpoint, Interrupt, Message, Run, Thread
from agentruntime.tokens import create_token

pytestmark = pytest.mark.django_db(transaction=True)
RUN = {"id", "thread", "graph", "status", "error", "open_interrupts", "created_at", "finished_at"}
INTERRUPT = {"id", "run", "thread", "message", "payload", "status", "tool_execution"}


@pytest.fixture
def thread(runtime, ann, api) -> Any:
    return api(ann).post("/api/v1/threads/", {}, format="json").json()


def start(client: Any, thread: Any, graph: str, text: Any = "tea", **more: Any) -> Any:
    body = {"graph": graph, "input": text, **more.pop("body", {})}
    return client.post(f"/api/v1/threads/{thread['id']}/runs/", body, format="json", **more)


def test_a_run_has_the_published_body(ann, api, thread, echo, work):
    client = api(ann)
    made = start(client, thread, echo)
    assert made.status_code == 201
    assert made.json().keys() >= RUN
    assert made.json()["status"] == "queued"
    assert made.json()["thread"] == thread["id"]
    work(made.json()["id"])
    found = client.get(f"/api/v1/runs/{made.json()['id']}/").json()
    assert (found["status"], found["error"], found["open_interrupts"]) == ("completed", None, [])
    listed = client.get("/api/v1/runs/?status=completed").json()["results"]
    assert [one["id"] for one in listed] == [found["id"]]
    assert client.get("/api/v1/runs/?status=failed").json()["results"] == []


def test_starting_is_idempotent_also_when_it_is_tried_at_once(ann, api, thread, echo, work):
    def one(_: int) -> tuple[int, str]:
        try:
            answer = start(api(ann), thread, echo, HTTP_IDEMPOTENCY_KEY="order-7")
            return answer.status_code, answer.json().get("id") or answer.content
        finally:
            connections.close_all()

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(one, range(5)))
    assert sorted(status for status, _ in answers) == [200, 200, 200, 200, 201]
    assert len({ident for _, ident in answers}) == 1
    work(answers[0][1])
    again = start(api(ann), thread, echo, HTTP_IDEMPOTENCY_KEY="order-7")
    assert (again.status_code, again.json()["id"]) == (200, answers[0][1])
    other = start(api(ann), thread, echo, "coffee", HTTP_IDEMPOTENCY_KEY="order-7")
    assert other.status_code == 409
    assert other.json()["code"] == "IDEMPOTENCY_CONFLICT_001"
    assert Run.objects.count() == 1


def test_a_key_belongs_to_its_caller(ann, bob, api, thread, echo):
    first = start(api(ann), thread, echo, HTTP_IDEMPOTENCY_KEY="k")
    theirs = api(bob).post("/api/v1/threads/", {}, format="json").json()
    second = start(api(bob), theirs, echo, HTTP_IDEMPOTENCY_KEY="k")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_a_key_that_cannot_be_kept_is_refused(ann, api, thread, echo, key):
    answer = start(api(ann), thread, echo, HTTP_IDEMPOTENCY_KEY=key)
    assert answer.status_code == 400
    assert not Run.objects.exists()


def test_a_busy_thread_refuses_the_next_run(ann, api, thread, echo):
    assert start(api(ann), thread, echo).status_code == 201
    refused = start(api(ann), thread, echo)
    assert refused.status_code == 409
    assert refused.json()["code"] == "THREAD_BUSY_001"
    assert refused["Retry-After"]


@pytest.mark.parametrize(
    "field", ["thread", "user", "tenant", "status", "fencing_token", "requester", "is_staff"]
)
def test_unknown_and_identity_fields_are_refused(ann, api, thread, echo, field):
    answer = start(api(ann), thread, echo, body={field: "x"})
    assert answer.status_code == 400
    assert field in answer.json()["errors"]
    made = api(ann).post("/api/v1/threads/", {field: "x"}, format="json")
    assert made.status_code == 400
    assert Thread.objects.count() == 1
    assert not Run.objects.exists()


@pytest.mark.parametrize("name", ["thread_id", "run_id", "checkpoint_id", "user", "tenant"])
def test_identity_inside_the_config_is_refused(ann, bob, api, thread, echo, name):
    foreign = Thread.objects.create(user=bob)
    answer = start(api(ann), thread, echo, body={"config": {name: str(foreign.pk)}})
    assert answer.status_code == 400
    assert not Run.objects.exists()
    assert not Checkpoint.objects.exists()


def test_a_run_on_a_foreign_thread_is_not_found(ann, bob, api, thread, echo):
    answer = start(api(bob), thread, echo)
    assert answer.status_code == 404
    assert answer.json() == {"code": "not_found", "detail": "Not found."}
    assert start(api(bob), {"id": uuid.uuid4()}, echo).json() == answer.json()
    assert not Run.objects.exists()
    assert not Message.objects.exists()


def test_a_question_is_answered_once_by_its_own_id(ann, api, thread, asking, work):
    client = api(ann)
    run = work(start(client, thread, asking).json()["id"])
    assert run.status == "interrupted"
    shown = client.get(f"/api/v1/runs/{run.pk}/").json()
    [asked] = shown["open_interrupts"]
    assert asked.keys() >= INTERRUPT
    assert asked["payload"] == {"topic": "tea"}
    assert client.get(f"/api/v1/threads/{thread['id']}/").json()["open_interrupts"] == [asked]
    path = f"/api/v1/interrupts/{asked['id']}/"
    assert client.get(path).json() == asked
    assert client.post(f"{path}resume/", {}, format="json").status_code == 400
    answered = client.post(f"{path}resume/", {"value": False}, format="json")
    assert answered.status_code == 200
    assert answered.json()["status"] == "answered"
    late = client.post(f"{path}resume/", {"value": True}, format="json")
    assert (late.status_code, late.json()["code"]) == (409, "INTERRUPT_ANSWERED_001")
    assert work(run.pk).status == "completed"
    said = client.get(f"/api/v1/threads/{thread['id']}/messages/").json()["results"]
    assert [one["role"] for one in said] == ["user", "assistant", "tool", "assistant"]
    assert '"answer": false' in said[2]["content"]


def test_a_run_is_stopped_and_cannot_be_retried(ann, api, thread, asking, work):
    client = api(ann)
    run = work(start(client, thread, asking).json()["id"])
    stopped = client.post(f"/api/v1/runs/{run.pk}/stop/", {}, format="json")
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopped")
    assert stopped.json()["open_interrupts"] == []
    assert Interrupt.objects.get().status == "cancelled"
    retried = client.post(f"/api/v1/runs/{run.pk}/retry/", {}, format="json")
    assert (retried.status_code, retried.json()["code"]) == (409, "RUN_STATUS_001")


def test_a_failed_run_is_retried_with_a_higher_limit(ann, api, thread, asking, work):
    client = api(ann)
    made = start(client, thread, asking, body={"config": {"recursion_limit": 1}}).json()
    run = work(made["id"])
    assert (run.status, run.error_code) == ("failed", "RECURSION_LIMIT_001")
    body = {"config": {"recursion_limit": 9}}
    retried = client.post(f"/api/v1/runs/{run.pk}/retry/", body, format="json")
    assert (retried.status_code, retried.json()["status"]) == (200, "queued")
    assert work(run.pk).status == "interrupted"


def test_deleting_a_thread_takes_everything_along(ann, api, thread, asking, work):
    client = api(ann)
    run = work(start(client, thread, asking).json()["id"])
    assert client.delete(f"/api/v1/threads/{thread['id']}/").status_code == 204
    for path in (f"threads/{thread['id']}/", f"runs/{run.pk}/", f"threads/{thread['id']}/events/"):
        assert client.get(f"/api/v1/{path}").status_code == 404
    for model in (Thread, Run, Message, Checkpoint, Interrupt):
        assert not model.objects.exists()


def test_pages_by_cursor_skip_nothing(ann, api, runtime):
    client = api(ann)
    made = [client.post("/api/v1/threads/", {}, format="json").json()["id"] for _ in range(7)]
    moment = Thread.objects.first().created_at
    Thread.objects.update(created_at=moment)  # a tie in the clock must not matter
    seen: list[str] = []
    page = client.get("/api/v1/threads/?page_size=2").json()
    while True:
        seen += [one["id"] for one in page["results"]]
        if page["next"] is None:
            break
        page = client.get(page["next"]).json()
    assert sorted(seen) == sorted(made)


def test_events_are_paged_by_their_number(ann, api, thread, echo, work):
    client = api(ann)
    run = work(start(client, thread, echo).json()["id"])
    page = client.get(f"/api/v1/runs/{run.pk}/events/").json()
    numbers = [one["seq"] for one in page["results"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert page["results"][-1]["type"] == "run.completed"
    assert page["results"][0].keys() == {"seq", "type", "run", "thread", "at", "data"}
    rest = client.get(f"/api/v1/threads/{thread['id']}/events/?after={numbers[-2]}").json()
    assert [one["seq"] for one in rest["results"]] == numbers[-1:]
    assert client.get(f"/api/v1/runs/{run.pk}/events/?after=-1").status_code == 400
    assert client.get(f"/api/v1/runs/{run.pk}/events/?after=9{'0' * 30}").status_code == 400


@pytest.mark.parametrize(
    "query", ["user=1", "status=nonsense", "order_by=user__password", "thread=x", "created_after=x"]
)
def test_filters_are_a_list_of_names(ann, api, runtime, query):
    assert api(ann).get(f"/api/v1/runs/?{query}").status_code == 400


def test_history_by_version(ann, api, thread, echo, work):
    client = api(ann)
    work(start(client, thread, echo).json()["id"])
    base = f"/api/v1/threads/{thread['id']}"
    listed = client.get(f"{base}/checkpoints/").json()["results"]
    assert [one["version"] for one in listed] == [2, 1]
    assert client.get(f"{base}/checkpoints/1/").json() == listed[1]
    for version in ("0", "3", "9" * 30):
        assert client.get(f"{base}/checkpoints/{version}/").status_code == 404
    assert client.get(f"{base}/tool-executions/?status=running").json()["results"] == []


def test_an_id_of_somebody_elses_message_is_no_way_in(ann, bob, api, thread, echo, work):
    work(start(api(ann), thread, echo).json()["id"])
    taken = str(Message.objects.first().pk)
    theirs = api(bob).post("/api/v1/threads/", {}, format="json").json()
    said = {"messages": [{"id": taken, "role": "user", "content": "mine now"}]}
    before = list(Message.objects.filter(thread_id=thread["id"]).order_by("ordinal").values())
    answer = start(api(bob), theirs, echo, said)
    assert answer.status_code == 201  # nor does the answer tell that there is such a message
    assert str(Message.objects.get(thread_id=theirs["id"]).pk) != taken
    after = list(Message.objects.filter(thread_id=thread["id"]).order_by("ordinal").values())
    assert after == before


def test_unknown_addresses_answer_in_json(client, db):
    answer = client.get("/api/v1/nothing/here/")
    assert answer.status_code == 404
    assert answer.json() == {"code": "not_found", "detail": "Not found."}


def test_a_database_that_is_away_is_503(ann, api, runtime, monkeypatch):
    from django.db import OperationalError

    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("the connection is lost")

    client = api(ann)
    monkeypatch.setattr("agentruntime.models.thread.ThreadQuerySet.visible_to", fail)
    answer = client.get("/api/v1/threads/")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer["Retry-After"]
    assert "connection" not in answer.json()["detail"]


def test_a_word_that_is_none_of_a_few_is_answered_with_those(ann, api):
    client = api(ann)
    made = client.post("/api/v1/threads/", {"on_busy": "wait"}, format="json")
    listed = client.get("/api/v1/runs/?status=done")
    assert (made.status_code, listed.status_code) == (400, 400)
    assert "there are: reject, queue, cancel." in made.json()["detail"]
    assert "“done” is not a valid choice; there are: queued, running" in listed.json()["detail"]


def test_a_token_without_the_scope_is_told_which(ann):
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {create_token(ann, ['read'])[1]}")
    answer = client.post("/api/v1/threads/", {}, format="json")
    assert answer.status_code == 403
    assert answer.json()["detail"] == "The token does not have the scope for this: run."
