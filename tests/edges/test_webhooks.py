"""What is told outside: each once with a stable id, signed, never into one's own network."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from standardwebhooks import Webhook

from agentruntime import outbound, webhooks
from agentruntime.lifecycle import start_run, stop_run
from agentruntime.models import DeliveryStatus, Run, WebhookDelivery, WebhookEndpoint

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver:
    """A server that takes what is posted, and answers what it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status = outer.answers.pop(0) if outer.answers else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def endpoint(runtime, ann, receiver) -> WebhookEndpoint:
    runtime(WEBHOOK_ALLOWED_NETWORKS=("127.0.0.0/8",))
    kinds = ["run.completed", "run.stopped", "run.interrupted", "approval.requested"]
    url = f"http://127.0.0.1:{receiver.port}/hook?x=1"
    return WebhookEndpoint.objects.create(user=ann, url=url, kinds=kinds)


def send_all() -> list[Any]:
    due = WebhookDelivery.objects.filter(status="pending").order_by("created_at")
    return [webhooks.deliver(one.pk) for one in due]


def test_a_run_that_ends_is_told_once_and_signed(ann, endpoint, receiver, echo, work):
    run = work(start_run(graph=echo, input="hi", user=ann).pk)
    assert send_all() == [True]
    assert send_all() == []
    [(headers, body)] = receiver.got
    told = Webhook(endpoint.secret).verify(body, headers)
    assert told["type"] == "run.completed"
    assert told["data"]["run"] == str(run.pk)
    assert headers["webhook-id"] == f"msg_{WebhookDelivery.objects.get().pk.hex}"
    assert len(body) < 20_000


def test_what_is_rolled_back_is_not_told(ann, endpoint, asking, work):
    run = work(start_run(graph=asking, input="hi", user=ann).pk)
    WebhookDelivery.objects.all().delete()
    with transaction.atomic():
        stop_run(run_id=run.pk)
        assert WebhookDelivery.objects.count() == 1
        transaction.set_rollback(True)
    assert WebhookDelivery.objects.count() == 0
    assert Run.objects.get(pk=run.pk).status == "interrupted"


def test_an_approval_is_told_of(ann, endpoint, receiver, shop, work):
    work(start_run(graph="support", input="Order 1042 is broken, refund it", user=ann).pk)
    kinds = set(WebhookDelivery.objects.values_list("payload__type", flat=True))
    assert kinds == {"approval.requested", "run.interrupted"}


def test_others_hear_nothing(bob, endpoint, echo, work):
    work(start_run(graph=echo, input="hi", user=bob).pk)
    assert not WebhookDelivery.objects.exists()


def test_it_is_tried_again_with_the_same_id_and_given_up_at_last(
    ann, endpoint, receiver, echo, work
):
    work(start_run(graph=echo, input="hi", user=ann).pk)
    receiver.answers = [500] * 20
    tries = 0
    while WebhookDelivery.objects.get().status == "pending":
        assert send_all() == [False]
        tries += 1
        row = WebhookDelivery.objects.get()
        if row.status == "pending":
            assert row.due_at > timezone.now()
            assert webhooks.deliver(row.pk) is None, "not before it is due"
            WebhookDelivery.objects.update(due_at=timezone.now())
    assert tries == len(receiver.got) == len(webhooks.PAUSES_SECONDS) + 1
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert WebhookDelivery.objects.get().status == "dead"


@pytest.mark.parametrize(("answer", "status"), [(302, "pending"), (410, "dead"), (200, "sent")])
def test_answers(ann, endpoint, receiver, echo, work, answer, status):
    work(start_run(graph=echo, input="hi", user=ann).pk)
    receiver.answers = [answer]
    send_all()
    assert WebhookDelivery.objects.get().status == status
    assert len(receiver.got) == 1, "a redirect is not followed"


def test_a_secret_is_rotated_with_both_in_use(ann, api, endpoint, receiver, echo, work):
    old = endpoint.secret
    new = (
        api(ann).post(f"/api/v1/webhooks/{endpoint.pk}/rotate/", {}, format="json").json()["secret"]
    )
    work(start_run(graph=echo, input="hi", user=ann).pk)
    send_all()
    [(headers, body)] = receiver.got
    for secret in (old, new):
        assert Webhook(secret).verify(body, headers)


def stored(endpoint: WebhookEndpoint) -> str:
    row = WebhookEndpoint.objects.filter(pk=endpoint.pk)
    return row.values_list("sealed_secret", flat=True).get()


def test_secrets_are_stored_sealed_and_follow_the_secret_key(ann, endpoint, settings):
    text = endpoint.secret
    endpoint.rotate_secret()
    everything = str(WebhookEndpoint.objects.values().get())
    assert text not in everything
    assert endpoint.secret not in everything
    assert endpoint.previous_secret == text

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another-" * 8, [settings.SECRET_KEY]
    before, secret = stored(endpoint), endpoint.secret
    assert secret is not None, "the older key still opens it"
    WebhookEndpoint.objects.get().seal_secrets_anew()
    assert stored(endpoint) != before
    settings.SECRET_KEY_FALLBACKS = []
    now = WebhookEndpoint.objects.get()
    assert (now.secret, now.previous_secret) == (secret, text), "today's key opens it alone"
    now.seal_secrets_anew()
    assert stored(endpoint) == now.sealed_secret


def test_a_secret_that_no_key_opens_is_a_dead_letter_that_says_so(
    ann, endpoint, receiver, echo, work, settings
):
    work(start_run(graph=echo, input="hi", user=ann).pk)
    settings.SECRET_KEY = "another-" * 8
    assert send_all() == [False]
    dead = WebhookDelivery.objects.get()
    assert (dead.status, receiver.got) == ("dead", [])
    assert "Rotate it" in dead.answer
    WebhookEndpoint.objects.get().rotate_secret()
    assert dead.send_again()
    assert send_all() == [True]


def test_the_sweep_sends_and_two_do_not_send_twice(ann, endpoint, receiver, echo, work):
    from tests.waiting import wait_until

    work(start_run(graph=echo, input="hi", user=ann).pk)
    for _ in range(3):
        webhooks.send_due()
    wait_until(lambda: WebhookDelivery.objects.get().status == "sent")
    assert len(receiver.got) == 1


def test_an_endpoint_is_made_and_its_secret_shown_once(ann, bob, api, runtime):
    body = {"url": "https://example.org/hook", "kinds": ["run.failed"]}
    made = api(ann).post("/api/v1/webhooks/", body, format="json")
    assert made.status_code == 201
    assert made.json()["secret"].startswith("whsec_")
    assert "secret" not in api(ann).get(f"/api/v1/webhooks/{made.json()['id']}/").json()
    assert api(bob).get("/api/v1/webhooks/").json()["results"] == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://user:pw@example.org/",
        "https:///x",
        "https://example.org:22/",
        "https://exa mple.org/",
        "https://example.org/\r\nX: y",
        "javascript:alert(1)",
        "https://example.org:99999/",
        "https://[::1",
    ],
)
def test_addresses_of_the_wrong_form_are_refused(ann, api, runtime, url):
    body = {"url": url, "kinds": ["run.failed"]}
    assert api(ann).post("/api/v1/webhooks/", body, format="json").status_code == 400
    assert not WebhookEndpoint.objects.exists()


PRIVATE = [
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
    "::127.0.0.1", "198.18.0.1", "192.0.2.1", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_however_they_are_written(runtime, address, monkeypatch):
    assert not outbound.is_public(address)

    def resolve(*_: Any, **__: Any) -> Any:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443)),
                (family, socket.SOCK_STREAM, 6, "", (address, 443))]  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("connected"))
    with pytest.raises(outbound.Refused):
        outbound.post("https://rebind.example/", b"{}", {})


def test_the_connection_goes_to_the_address_that_was_checked(runtime, monkeypatch):
    asked: list[str] = []
    went: list[Any] = []

    def resolve(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    def connect(place: Any, *_: Any) -> Any:
        went.append(place)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(OSError, match="no network"):
        outbound.post("https://rebind.example/", b"{}", {})
    assert (asked, went) == (["rebind.example"], [("93.184.216.34", 443)])


def test_a_refused_address_is_dead_at_once(ann, runtime, echo, work, monkeypatch):
    WebhookEndpoint.objects.create(user=ann, url="https://localhost/admin", kinds=["run.completed"])
    work(start_run(graph=echo, input="hi", user=ann).pk)
    send_all()
    row = WebhookDelivery.objects.get()
    assert (row.status, row.attempts) == (DeliveryStatus.DEAD, 1)
    assert "public" in row.answer
    json.dumps(row.payload)
