"""Told once: by mail, signed webhook and Slack, whatever dies when."""

import http.server
import json
import shutil
import signal
import subprocess
import sys
import threading
from email import message_from_bytes

import pytest
from django.core import mail
from django.utils import timezone
from standardwebhooks import Webhook

from approvals import due
from approvals.decide import decide
from approvals.models import Notice
from approvals.notifications import sending
from tests.processes import ROOT

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def listener():
    """A small server that keeps what it is sent and answers what it is told."""
    taken = []

    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((dict(self.headers), body))
            self.send_response(Handler.status)
            if Handler.status == 302:
                self.send_header("Location", "http://169.254.169.254/")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.taken, server.handler = taken, Handler
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def channels(settings, listener):
    settings.AGENTRUNTIME = {"EMBEDDED_WORKER": False, "WEBHOOK_ALLOWED_NETWORKS": ("127.0.0.0/8",)}
    settings.APPROVALS = {
        "MAIL": True,
        "SITE_URL": "https://desk.example.com",
        "WEBHOOKS": [{"name": "ops", "url": listener.url, "secret": SECRET}],
        "SLACK": [{"name": "desk", "url": listener.url}],
    }


def make_due():
    Notice.objects.filter(status="due").update(
        due_at=timezone.now() - timezone.timedelta(seconds=1)
    )


def test_each_recipient_is_told_once_per_channel(ask, person, channels, listener):
    for name in ("one", "two", "three", "four", "five"):
        person(name, "approvals.decide_refund")
    person("wrong")
    ask()
    for _ in range(3):
        due.sweep()
        make_due()
    assert sorted(one.to[0] for one in mail.outbox) == sorted(
        f"{name}@example.com" for name in ("one", "two", "three", "four", "five")
    )
    assert len(listener.taken) == 2
    assert set(Notice.objects.values_list("status", flat=True)) == {"sent"}


def test_a_mail_says_what_is_asked_and_its_link_opens_a_page(ask, bob, channels):
    approval = ask()
    due.sweep()
    message = mail.outbox[0]
    assert message.subject == "To decide: Refund 30.00 for 1042"
    assert "Amount: 30.00 EUR" in message.body
    assert (
        f"https://desk.example.com/admin/approvals/approval/{approval.pk}/change/" in message.body
    )
    assert "decides nothing" in message.body


def test_a_webhook_is_signed_and_slack_is_plain(ask, bob, channels, listener):
    approval = ask(order_id="<!channel>")
    due.sweep()
    signed = next(one for one in listener.taken if "webhook-signature" in one[0])
    headers = {name.lower(): value for name, value in signed[0].items()}
    told = Webhook(SECRET).verify(signed[1].decode(), headers)
    assert told["type"] == "approval.requested"
    assert told["data"]["approval"] == str(approval.pk)
    assert "arguments" not in told["data"]
    slack = json.loads(next(one for one in listener.taken if one is not signed)[1])
    assert "&lt;!channel&gt;" in slack["text"]
    assert {block.get("text", {"type": "plain_text"})["type"] for block in slack["blocks"]} == {
        "plain_text"
    }


POINTS = ["before taking", "after taking", "after sending", "while marking"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it on the way."""


@pytest.mark.parametrize("channel", ["mail", "webhook", "slack"])
@pytest.mark.parametrize("point", POINTS)
def test_a_sender_that_is_killed_repeats_at_most_the_one_in_flight(
    ask, bob, channels, listener, monkeypatch, settings, point, channel
):
    keep = {"mail": "MAIL", "webhook": "WEBHOOKS", "slack": "SLACK"}[channel]
    others = {"MAIL": False, "WEBHOOKS": (), "SLACK": ()}
    del others[keep]
    settings.APPROVALS = settings.APPROVALS | others
    ask()
    due.plan_due()
    place = {
        "before taking": (sending, "take_next", False),
        "after taking": (sending, "take_next", True),
        "after sending": (sending.SENDERS, channel, True),
        "while marking": (sending, "mark_sent", False),
    }[point]
    die_at(monkeypatch, *place)
    with pytest.raises(Killed):
        sending.send_due()
    monkeypatch.undo()
    settings.AGENTRUNTIME = {"EMBEDDED_WORKER": False, "WEBHOOK_ALLOWED_NETWORKS": ("127.0.0.0/8",)}
    sending.send_due()
    make_due()
    sending.send_due()
    sending.send_due()
    ids = ids_on_the_wire(channel, listener)
    assert len(ids) == (2 if point in ("after sending", "while marking") else 1)
    assert len(set(ids)) == 1
    assert Notice.objects.get().status == "sent"


KILLED_AT = {
    "before taking": 1, "before sending": 1, "after sending": 2, "before the mark is committed": 2,
}  # fmt: skip


@pytest.fixture
def killed_sender(process_environment, settings, tmp_path):
    """Has a process send what is due and kill itself at a point; returns the signal it died of."""
    laid = {
        "AGENTRUNTIME": settings.AGENTRUNTIME,
        "APPROVALS": settings.APPROVALS,
        "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
        "EMAIL_FILE_PATH": str(tmp_path / "mails"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.approvals.killed_sender", json.dumps(laid)],
        cwd=ROOT, env=process_environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"

        def send(channel, point):
            process.stdin.write(f"{channel}|{point}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield send
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["mail", "webhook"])
def test_a_process_that_is_killed_while_it_sends_repeats_at_most_the_one_in_flight(
    ask, bob, channels, listener, settings, tmp_path, channel, request
):
    others = {"mail": {"WEBHOOKS": (), "SLACK": ()}, "webhook": {"MAIL": False, "SLACK": ()}}
    settings.APPROVALS = settings.APPROVALS | others[channel]
    killed_sender = request.getfixturevalue("killed_sender")
    for point, times in KILLED_AT.items():
        mail.outbox.clear()
        listener.taken.clear()
        shutil.rmtree(tmp_path / "mails", ignore_errors=True)
        approval = ask()
        due.plan_due()
        assert killed_sender(channel, point) == signal.SIGKILL
        for _ in range(3):
            make_due()
            sending.send_due()
        stored = [message_from_bytes(one.read_bytes()) for one in tmp_path.glob("mails/*.log")]
        ids = [one["Message-ID"] for one in stored] + ids_on_the_wire(channel, listener)
        assert (len(ids), len(set(ids))) == (times, 1), (point, ids)
        assert Notice.objects.get(approval=approval).status == "sent"


def die_at(monkeypatch, holder, name, after):
    real = holder[name] if isinstance(holder, dict) else getattr(holder, name)

    def dying(*args):
        if after:
            real(*args)
        raise Killed

    if isinstance(holder, dict):
        monkeypatch.setitem(holder, name, dying)
    else:
        monkeypatch.setattr(holder, name, dying)


def ids_on_the_wire(channel, listener):
    if channel == "mail":
        return [one.extra_headers["Message-ID"] for one in mail.outbox]
    if channel == "webhook":
        return [
            {k.lower(): v for k, v in headers.items()}["webhook-id"]
            for headers, _ in listener.taken
        ]
    return [json.loads(body)["blocks"][2]["elements"][0]["action_id"] for _, body in listener.taken]


def test_nothing_is_sent_for_what_was_decided_meanwhile(ask, bob, channels, listener):
    approval = ask()
    due.plan_due()
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    sending.send_due()
    assert (mail.outbox, listener.taken) == ([], [])
    assert set(Notice.objects.values_list("status", flat=True)) == {"dropped"}


def test_what_fails_is_tried_again_and_given_up_in_the_end(ask, bob, channels, listener, settings):
    settings.APPROVALS = settings.APPROVALS | {"MAIL": False, "SLACK": (), "SEND_TRIES": 3}
    listener.handler.status = 500
    ask()
    for _ in range(5):
        due.sweep()
        make_due()
    notice = Notice.objects.get()
    assert (notice.status, notice.tries, len(listener.taken)) == ("dead", 3, 3)
    assert "500" in notice.error


def test_redirects_and_private_addresses_are_not_followed(ask, bob, channels, listener, settings):
    listener.handler.status = 302
    ask()
    due.sweep()
    assert len(listener.taken) == 2
    assert Notice.objects.filter(status="due", channel="webhook").exists()
    settings.AGENTRUNTIME = {"EMBEDDED_WORKER": False}
    make_due()
    due.sweep()
    assert Notice.objects.get(channel="webhook").status == "dead"
    assert len(listener.taken) == 2


def test_a_line_end_in_a_title_makes_no_header(ask, bob, channels):
    ask(order_id="1\nBcc: all@example.com")
    due.sweep()
    assert "\n" not in mail.outbox[0].subject
    assert mail.outbox[0].to == ["bob@example.com"]
    assert mail.outbox[0].recipients() == ["bob@example.com"]
