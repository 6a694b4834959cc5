"""Webhooks in the admin: who may do what, secrets that are shown once, dead letters sent again."""

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from agentruntime.models import DeliveryStatus, WebhookDelivery, WebhookEndpoint

pytestmark = pytest.mark.django_db(transaction=True)
ENDPOINTS = "/admin/agentruntime/webhookendpoint/"
DELIVERIES = "/admin/agentruntime/webhookdelivery/"
XSS = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _open_network(runtime, monkeypatch):
    """Addresses are not looked up: what is refused is tested where it is decided."""
    monkeypatch.setattr("agentruntime.admin.webhooks.check_url", lambda url: None)


@pytest.fixture
def endpoint(person):
    kinds = ["run.completed"]
    return WebhookEndpoint.objects.create(
        user=person("ann"), url="https://example.org/hook", kinds=kinds
    )


@pytest.fixture
def delivery(endpoint):
    def make(status=DeliveryStatus.DEAD, key="t:1", **more):
        payload = {"type": "run.completed", "data": {"said": XSS}}
        return WebhookDelivery.objects.create(
            endpoint=endpoint, event_key=key, payload=payload, status=status, attempts=9,
            due_at=timezone.now(), answer="503", **more,
        )  # fmt: skip

    return make


@pytest.fixture
def staff(person, client):
    """Logs a member of staff in with these permissions."""

    def log_in(*permissions):
        client.force_login(person("sta", *permissions, is_staff=True))
        return client

    return log_in


def every_right():
    return [
        f"agentruntime.{verb}_{model}"
        for verb in ("view", "add", "change")
        for model in ("webhookendpoint", "webhookdelivery")
    ]


@pytest.mark.parametrize("place", [ENDPOINTS, f"{ENDPOINTS}add/", DELIVERIES])
def test_without_the_right_nothing_is_shown(client, staff, place):
    assert "/login/" in client.get(place).headers["Location"]
    assert staff().get(place).status_code == 403


def test_an_added_endpoint_tells_its_secret_once(staff, person):
    ann = person("ann")
    client = staff(*every_right())
    form = {"user": ann.pk, "url": "https://example.org/a", "kinds": ["run.failed"]}
    answer = client.post(f"{ENDPOINTS}add/", form | {"is_active": "on"})

    made = WebhookEndpoint.objects.get()
    assert made.secret in answer.content.decode()
    assert made.kinds == ["run.failed"]
    assert "no-store" in answer["Cache-Control"]
    for place in (ENDPOINTS, f"{ENDPOINTS}{made.pk}/change/", f"{ENDPOINTS}{made.pk}/history/"):
        assert made.secret not in client.get(place).content.decode()


def test_an_address_that_is_refused_is_not_stored(staff, person, monkeypatch):
    from agentruntime.outbound import check_url

    monkeypatch.setattr("agentruntime.admin.webhooks.check_url", check_url)
    form = {"user": person("ann").pk, "url": "http://127.0.0.1/", "kinds": ["run.failed"]}
    answer = staff(*every_right()).post(f"{ENDPOINTS}add/", form)
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_editing_keeps_the_secret_and_the_owner(staff, endpoint, person):
    form = {"user": person("bob").pk, "url": "https://example.org/b", "kinds": ["run.stopped"]}
    answer = staff(*every_right()).post(f"{ENDPOINTS}{endpoint.pk}/change/", form)
    assert answer.status_code == 302
    now = WebhookEndpoint.objects.get()
    assert (now.url, now.is_active) == ("https://example.org/b", False)
    assert (now.user_id, now.secret) == (endpoint.user_id, endpoint.secret)


def test_rotation_shows_the_fresh_secret_and_keeps_the_one_before(staff, endpoint):
    form = {"action": "rotate_secrets", "_selected_action": [str(endpoint.pk)]}
    answer = staff(*every_right()).post(ENDPOINTS, form)
    now = WebhookEndpoint.objects.get()
    assert now.previous_secret == endpoint.secret != now.secret
    assert now.secret in answer.content.decode()
    assert endpoint.secret not in answer.content.decode()


def test_who_may_only_look_cannot_rotate_or_send_again(staff, endpoint, delivery):
    row = delivery()
    client = staff("agentruntime.view_webhookendpoint", "agentruntime.view_webhookdelivery")
    client.post(ENDPOINTS, {"action": "rotate_secrets", "_selected_action": [str(endpoint.pk)]})
    client.post(DELIVERIES, {"action": "send_again", "_selected_action": [str(row.pk)]})
    assert WebhookEndpoint.objects.get().secret == endpoint.secret
    assert WebhookDelivery.objects.get().status == DeliveryStatus.DEAD


def test_dead_letters_are_found_and_shown_as_text(staff, endpoint, delivery):
    dead, sent = delivery(key="t:dead"), delivery(DeliveryStatus.SENT, key="t:sent")
    client = staff(*every_right())
    assert f"status__exact=dead&endpoint__id__exact={endpoint.pk}" in (
        client.get(ENDPOINTS).content.decode().replace("&amp;", "&")
    )
    place = f"{DELIVERIES}?status__exact=dead&endpoint__id__exact={endpoint.pk}"
    listed = client.get(place).content.decode()
    assert "t:dead" in listed
    assert "t:sent" not in listed
    shown = client.get(f"{DELIVERIES}{dead.pk}/change/").content.decode()
    assert XSS not in shown
    assert "&lt;script&gt;" in shown
    assert client.post(f"{DELIVERIES}{sent.pk}/change/", {"status": "dead"}).status_code == 403
    client.get(f"{DELIVERIES}?action=send_again&_selected_action={dead.pk}")
    assert WebhookDelivery.objects.get(pk=dead.pk).status == DeliveryStatus.DEAD


def test_only_dead_letters_are_sent_again_each_with_its_result(staff, endpoint, delivery):
    dead, sent = delivery(key="t:dead"), delivery(DeliveryStatus.SENT, key="t:sent")
    client = staff(*every_right())
    ids = [str(dead.pk), str(sent.pk)]
    form = {"action": "send_again", "_selected_action": ids}
    answer = client.post(DELIVERIES, form, follow=True).content.decode()

    assert "t:dead: is sent again" in answer
    assert "t:sent: not sent" in answer
    dead.refresh_from_db()
    sent.refresh_from_db()
    assert (dead.status, dead.attempts) == (DeliveryStatus.PENDING, 0)
    assert (sent.status, sent.attempts) == (DeliveryStatus.SENT, 9)
    assert WebhookDelivery.claim(dead.pk, 60) is not None
    assert LogEntry.objects.filter(object_id=str(dead.pk)).count() == 1

    dead.settle(DeliveryStatus.DEAD, "503")
    WebhookDelivery.objects.filter(pk=dead.pk).update(status=DeliveryStatus.DEAD)
    WebhookEndpoint.objects.update(is_active=False)
    assert "switched off" in client.post(DELIVERIES, form, follow=True).content.decode()
    dead.refresh_from_db()
    assert dead.status == DeliveryStatus.DEAD
