"""Sending what is due: taken in one transaction, sent outside of any, marked in another.

Who dies after the sending and before the mark leaves a notice that is taken again later and sent
with the same id (Message-ID, webhook-id): at most the one message that was in flight is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils import timezone
from standardwebhooks import Webhook

from agentruntime.crash import crash_point
from agentruntime.models import DatabaseTime, StatementTime
from agentruntime.models.transactions import durably
from agentruntime.outbound import Refused, post
from agentruntime.signals import noticed
from approvals.conf import approval_settings
from approvals.exceptions import NotSendable
from approvals.models import Channel, Notice, NoticeStatus
from approvals.notifications.wording import event_of, slack_of, subject_of, text_of

TAKEN_SECONDS = 120
PAUSES_SECONDS = (5, 30, 120, 600, 1800, 3600, 7200, 14_400)


def send_due(limit: int | None = None) -> int:
    """Send what is due, one after the other, and return how many were sent."""
    sent = 0
    for _ in range(limit or approval_settings().SEND_STEP):
        notice = durably(take_next)
        if notice is None:
            return sent
        sent += _send(notice)
    return sent


def take_next() -> Notice | None:
    """Take the notice that is due longest, so that no other sender does; drop what is decided."""
    due = Notice.objects.filter(status=NoticeStatus.DUE, due_at__lte=StatementTime())
    while True:
        rows = due.select_for_update(skip_locked=True)
        notice = rows.order_by("due_at", "id").first()
        if notice is None:
            return None
        if notice.approval.is_pending:
            break
        Notice.objects.filter(pk=notice.pk).update(status=NoticeStatus.DROPPED)
    Notice.objects.filter(pk=notice.pk).update(
        tries=notice.tries + 1, due_at=DatabaseTime(TAKEN_SECONDS)
    )
    notice.tries += 1
    return notice


def _send(notice: Notice) -> bool:
    try:
        SENDERS[notice.channel](notice)
    except Exception as error:
        problem = error
        durably(lambda: _mark_failed(notice, problem))
        return False
    crash_point("A2")
    durably(lambda: mark_sent(notice))
    return True


def mark_sent(notice: Notice) -> None:
    Notice.objects.filter(pk=notice.pk).update(
        status=NoticeStatus.SENT, sent_at=DatabaseTime(), error=""
    )


def _mark_failed(notice: Notice, error: Exception) -> None:
    dead = isinstance(error, NotSendable) or notice.tries >= approval_settings().SEND_TRIES
    pause = PAUSES_SECONDS[min(notice.tries, len(PAUSES_SECONDS)) - 1]
    Notice.objects.filter(pk=notice.pk).update(
        status=NoticeStatus.DEAD if dead else NoticeStatus.DUE,
        due_at=DatabaseTime(pause),
        error=f"{type(error).__name__}: {error}"[:500],
    )
    if dead:
        facts = {"notice": notice.pk, "channel": notice.channel, "error": repr(error)[:300]}
        noticed.send(sender=None, level="error", event="a notice was given up", facts=facts)


def send_mail(notice: Notice) -> None:
    """Send one mail to one person; its Message-ID is the notice's id."""
    sender = approval_settings().MAIL_FROM or settings.DEFAULT_FROM_EMAIL
    domain = sender.rpartition("@")[2].strip("> ") or "localhost"
    EmailMessage(
        subject=subject_of(notice),
        body=text_of(notice),
        from_email=sender,
        to=[notice.recipient],
        headers={
            "Message-ID": f"<{notice.pk}@{domain}>",
            "Auto-Submitted": "auto-generated",
        },
    ).send()


def send_webhook(notice: Notice) -> None:
    """Post one signed notice (standardwebhooks.com); its webhook-id is the notice's id."""
    endpoint = _endpoint(approval_settings().WEBHOOKS, notice)
    body = json.dumps(event_of(notice), ensure_ascii=False)
    now = timezone.now()
    secrets = str(endpoint["secret"]).split()
    signatures = [Webhook(secret).sign(str(notice.pk), now, body) for secret in secrets]
    headers = {
        "Content-Type": "application/json",
        "webhook-id": str(notice.pk),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
    _post(endpoint["url"], body, headers)


def send_slack(notice: Notice) -> None:
    """Post one notice to a Slack incoming webhook."""
    endpoint = _endpoint(approval_settings().SLACK, notice)
    body = json.dumps(slack_of(notice), ensure_ascii=False)
    _post(endpoint["url"], body, {"Content-Type": "application/json"})


def _endpoint(endpoints: Any, notice: Notice) -> Any:
    for one in endpoints:
        if one["name"] == notice.recipient:
            return one
    raise NotSendable(reason=f"{notice.recipient} is no endpoint of the settings any more")


def _post(url: str, body: str, headers: dict[str, str]) -> None:
    try:
        status = post(url, body.encode(), headers)
    except Refused as error:
        raise NotSendable(reason=str(error)) from error
    if status == 410:
        raise NotSendable(reason="the other side is gone (410)")
    if not 200 <= status < 300:
        raise OSError(f"the other side answered {status}")


SENDERS: dict[str, Callable[[Notice], None]] = {
    str(Channel.MAIL): send_mail,
    str(Channel.WEBHOOK): send_webhook,
    str(Channel.SLACK): send_slack,
}
