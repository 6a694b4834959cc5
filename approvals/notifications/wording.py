"""What a notice says: the call from typed fields, and a link to its page that decides nothing."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from approvals.conf import approval_settings
from approvals.models import Approval, Notice
from approvals.visible import plain, shortened

SUBJECTS = {
    "asked": "To decide: {title}",
    "reminder": "Still waiting: {title}",
    "escalated": "Escalated to you: {title}",
}
KINDS = {
    "asked": "approval.requested",
    "reminder": "approval.reminder",
    "escalated": "approval.escalated",
}
SLACK_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))


def link_to(approval: Approval) -> str:
    """Return the address of the decision page. It asks for a login and decides nothing."""
    path = reverse("admin:approvals_approval_change", args=[approval.pk])
    return approval_settings().SITE_URL.rstrip("/") + path


def subject_of(notice: Notice) -> str:
    """Return one line; what hides or reorders is escaped, what is cut is marked."""
    title = shortened(plain(notice.approval.title or notice.approval.tool), 120)
    return SUBJECTS[notice.why].format(title=title)


def facts_of(approval: Approval) -> list[tuple[str, str]]:
    """Return what is asked, the money and whom it concerns first, as labelled lines."""
    money = f"{approval.shown_amount} {approval.currency}".strip()
    until = approval.expires_at
    facts = [
        ("Amount", money),
        (approval.rule.get("target_argument") or "For", approval.target),
        ("What", approval.title),
        ("Tool", approval.tool),
        ("Asked for by", approval.requester_name),
        ("Agent", approval.graph),
        ("Until", until.strftime("%Y-%m-%d %H:%M UTC") if until else ""),
    ]
    return [(label, shortened(plain(value), 500)) for label, value in facts if value]


def text_of(notice: Notice) -> str:
    """Return the body of a mail, as plain text."""
    lines = [f"{label}: {value}" for label, value in facts_of(notice.approval)]
    return "\n".join(
        [
            "An agent waits for a decision.",
            "",
            *lines,
            "",
            "Look at it and decide here (you need to be logged in):",
            link_to(notice.approval),
            "",
            "Opening the link decides nothing. Answering this mail decides nothing.",
        ]
    )


def event_of(notice: Notice) -> dict[str, Any]:
    """Return the body of a signed webhook, without arguments: small, and without secrets."""
    approval = notice.approval
    return {
        "type": KINDS[notice.why],
        "timestamp": notice.created_at.isoformat(),
        "data": {
            "approval": str(approval.pk),
            "title": shortened(approval.title, 500),
            "tool": approval.tool,
            "agent": approval.graph,
            "amount": approval.shown_amount or None,
            "currency": approval.currency,
            "target": shortened(approval.target, 500),
            "requester": approval.requester_name,
            "expires_at": approval.expires_at.isoformat() if approval.expires_at else None,
            "url": link_to(approval),
        },
    }


def slack_of(notice: Notice) -> dict[str, Any]:
    """Return the body of a Slack incoming webhook: plain text blocks, and a button that opens."""
    facts = facts_of(notice.approval)
    text = "\n".join(f"{label}: {value}" for label, value in facts)
    return {
        "text": _for_slack(subject_of(notice)),
        "blocks": [
            {"type": "header", "text": _plain_text(shortened(subject_of(notice), 110))},
            {"type": "section", "text": _plain_text(shortened(text, 2500))},
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "text": _plain_text("Look at it"),
                        "url": link_to(notice.approval),
                        "action_id": f"open-{notice.pk}",
                    }
                ],
            },
        ],
    }


def _plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _for_slack(text: str) -> str:
    for character, escape in SLACK_ESCAPES:
        text = text.replace(character, escape)
    return text
