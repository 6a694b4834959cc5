"""Rates hold when they are tried in parallel, and tokens are what they say."""

import base64
import io
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone
from knox.models import get_token_model

from agentruntime.models import Run, Thread, TokenGrant, WebhookDelivery, WebhookEndpoint
from agentruntime.tokens import create_token

pytestmark = pytest.mark.django_db(transaction=True)


def in_parallel(work: Any, times: int = 50) -> list[int]:
    def one(number: int) -> int:
        try:
            return int(work(number).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        return list(pool.map(one, range(times)))


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_passwords_are_tried_five_times_an_hour(runtime, ann, client, path):
    runtime(RATE_LIMITS={"login": "5/h"})
    from django.test import Client

    tried = {"username": "ann", "password": "wrong"}
    answers = in_parallel(lambda _: Client().post(path, tried))
    assert answers.count(429) == 45, answers
    refused = client.post(path, {"username": "ann", "password": "pass-word-1"})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0


def try_to_log_in(name: str, address: str, password: str = "pass-word-1") -> int:
    from django.test import Client

    tried = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post("/accounts/login/", tried).status_code


def test_nobody_keeps_another_person_out_by_trying_their_name(runtime, ann):
    runtime(RATE_LIMITS={"login": "3/h"})
    tries = [try_to_log_in("ann", "203.0.113.9", "wrong") for _ in range(5)]
    assert tries == [200, 200, 200, 429, 429]
    for same in (" ANN ", "\uff41nn"):  # as the form reads it, they are one name
        assert try_to_log_in(same, "203.0.113.9") == 429
    assert try_to_log_in("ann", "198.51.100.4") == 302


def test_one_address_does_not_try_name_after_name(runtime, ann):
    runtime(RATE_LIMITS={"login-address": "4/h"})
    tries = [try_to_log_in(f"name-{number}", "203.0.113.9") for number in range(6)]
    assert tries == [200, 200, 200, 200, 429, 429]
    assert try_to_log_in("ann", "198.51.100.4") == 302


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.9", "::ffff:203.0.113.9"),
        ("a socket", "a socket"),
        ("", "unknown"),
    ],
)
def test_an_address_is_what_one_caller_has(rf, given, counted):
    from agentruntime.throttles import address_of

    assert address_of(rf.get("/", REMOTE_ADDR=given)) == counted


def test_the_right_password_over_basic_is_counted_too(runtime, ann, api):
    runtime(RATE_LIMITS={"login": "5/h"})
    pair = base64.b64encode(b"ann:pass-word-1").decode()

    def make(_: int) -> Any:
        client = api()
        client.credentials(HTTP_AUTHORIZATION=f"Basic {pair}")
        return client.post("/api/v1/tokens/", {"scopes": ["read"]}, format="json")

    answers = in_parallel(make)
    assert (answers.count(201), answers.count(429)) == (5, 45), answers


@pytest.mark.parametrize(("scope", "made"), [("token", 7), ("run", 3)])
def test_a_limit_counts_every_parallel_call(runtime, ann, api, echo, scope, made):
    runtime(RATE_LIMITS={scope: f"{made}/h"})
    threads = [Thread.objects.create(user=ann) for _ in range(50)]

    def call(number: int) -> Any:
        if scope == "token":
            return api(ann).post("/api/v1/tokens/", {"scopes": ["read"]}, format="json")
        body = {"graph": echo, "input": "hi"}
        return api(ann).post(f"/api/v1/threads/{threads[number].pk}/runs/", body, format="json")

    answers = in_parallel(call)
    assert (answers.count(201), answers.count(429)) == (made, 50 - made), answers
    assert Run.objects.count() == (made if scope == "run" else 0)


def test_decisions_are_limited_per_person(runtime, person, api):
    import uuid

    runtime(RATE_LIMITS={"decide": "4/h"})
    staff = person("staff", is_staff=True)
    path = f"/api/v1/approvals/{uuid.uuid4()}/approve/"
    answers = in_parallel(lambda _: api(staff).post(path, {}, format="json"))
    assert answers.count(429) == 46, answers


def test_a_token_is_shown_once_and_stored_hashed(runtime, ann, api):
    made = api(ann).post("/api/v1/tokens/", {"scopes": ["read"], "name": "laptop"}, format="json")
    assert made.status_code == 201
    text = made.json()["token"]
    listed = api(ann).get("/api/v1/tokens/").json()
    assert [(one["name"], one["scopes"]) for one in listed] == [("laptop", ["read"])]
    assert text not in str(listed)
    row = get_token_model().objects.get()
    assert text not in (row.digest, row.token_key)


@pytest.mark.parametrize("prefix", ["Token", "Bearer"])
def test_a_token_does_what_its_scope_says_until_it_is_revoked(runtime, ann, api, prefix):
    _, text = create_token(ann, ["read", "run"])
    client = api()
    client.credentials(HTTP_AUTHORIZATION=f"{prefix} {text}")
    assert client.post("/api/v1/threads/", {}, format="json").status_code == 201
    assert client.get("/api/v1/tokens/").status_code == 401, "a token makes and lists no tokens"
    assert client.post("/api/v1/tokens/revoke/").status_code == 204
    assert client.get("/api/v1/threads/").status_code == 401
    assert not TokenGrant.objects.exists()


def test_no_token_both_runs_and_decides(runtime, ann, api):
    for scopes in (["run", "decide"], ["read", "run", "decide"], [], ["admin"]):
        answer = api(ann).post("/api/v1/tokens/", {"scopes": scopes}, format="json")
        assert answer.status_code == 400
        with pytest.raises(ValueError):
            create_token(ann, scopes)
    assert not get_token_model().objects.exists()


def test_one_revokes_only_ones_own(runtime, ann, bob, api):
    token, _ = create_token(ann, ["read"])
    path = f"/api/v1/tokens/{token.digest[:32]}/"
    assert api(bob).delete(path).status_code == 404
    assert api(ann).delete("/api/v1/tokens/x/").status_code == 404
    assert api(ann).delete(path).status_code == 204


def test_tokens_expire_and_end_with_their_user(runtime, ann, api):
    client = api(ann, ("read",))
    assert client.get("/api/v1/threads/").status_code == 200
    ann.is_active = False
    ann.save()
    assert client.get("/api/v1/threads/").status_code == 401
    ann.is_active = True
    ann.save()
    get_token_model().objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert client.get("/api/v1/threads/").status_code == 401


def test_a_token_is_bound_to_its_tenant(runtime, person, api, monkeypatch):
    runtime(TENANT_OF="tests.edges.tenants.by_name")
    ann = person("ann@red")
    client = api(ann, ("read",))
    assert client.get("/api/v1/threads/").status_code == 200
    ann.username = "ann@blue"
    ann.save()
    assert client.get("/api/v1/threads/").status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "Token",
        "Token a b",
        "Token \xff",
        "Token " + "x" * 5000,
        "Basic !!!",
        "Basic AA==",
        "Magic x",
    ],
)
def test_headers_that_are_no_credentials(runtime, api, db, header):
    client = api()
    client.credentials(HTTP_AUTHORIZATION=header)
    for path in ("/api/v1/threads/", "/api/v1/tokens/"):
        assert client.get(path).status_code == 401


def test_health_tells_and_needs_no_login(client, db):
    assert client.get("/health/live").json() == {"status": "ok"}
    found = client.get("/health/ready").json()
    assert found["checks"].keys() == {
        "database",
        "redis",
        "oldest_queued_run",
        "sweep_lag",
        "outbox_lag",
        "notices_lag",
    }
    assert found["checks"]["database"]["status"] == "ok"


def test_health_tells_how_late_each_outbox_is(client, db, ann):
    from approvals.models import Approval, Notice

    late = timezone.now() - timedelta(seconds=90)
    approval = Approval.objects.create(run_id=uuid.uuid4(), thread_id=uuid.uuid4())
    Notice.objects.create(approval=approval, channel="mail", recipient="a@b.c", due_at=late)
    hook = WebhookEndpoint.objects.create(user=ann, url="https://example.org/", kinds=[])
    WebhookDelivery.objects.create(endpoint=hook, event_key="k", payload={}, due_at=late)
    found = client.get("/health/ready").json()
    assert found["status"] == "degraded"
    for name in ("outbox_lag", "notices_lag"):
        check = found["checks"][name]
        assert (check["status"], 90 <= check["seconds"] < 120) == ("late", True), check


def test_health_is_red_without_the_database(client, db, monkeypatch):
    from agentruntime import health

    def fail() -> Any:
        raise ConnectionError

    monkeypatch.setitem(health.CHECKS, "database", fail)
    assert client.get("/health/ready").status_code == 503


def test_pages_and_the_command_start_runs_in_the_users_tenant(person, echo, runtime):
    from django.core.management import call_command
    from django.test import Client
    from django.urls import reverse

    runtime(TENANT_OF="tests.edges.tenants.by_name")
    user = person("ann@red")
    client = Client()
    client.force_login(user)
    written = {"graph": echo, "message": "hi", "key": str(uuid.uuid4())}
    client.post(reverse("pages:start"), written)
    call_command("start_run", echo, message="hi", user="ann@red", stdout=io.StringIO())
    assert list(Thread.objects.values_list("tenant", flat=True)) == ["red", "red"]
