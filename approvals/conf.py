"""Every setting of the approvals, its unit and default. Read from `settings.APPROVALS`, lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.core.signals import setting_changed

from agentruntime.conf import read_settings


@dataclass(frozen=True)
class Settings:
    """The names that `APPROVALS` may have. Times are in seconds."""

    RULES: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Who may decide what, by tool name ("*": every tool without a rule of its own). A rule has
    `permission`, `group`, `approvers`, laid over what the code says, and `limits`: a list of bands
    {"up_to": amount or None, "permission", "group", "currency", "approvers"}."""
    DEFAULT_PERMISSION: str = "approvals.decide_approval"
    """What a decider must hold where a rule names neither a permission nor a group."""
    REQUESTER_MAY_DECIDE: bool | Sequence[str] = False
    """Lets people decide what they asked for themselves: everyone (True), or these user names.
    Each decision that needed it says so in its record."""
    EDITOR_MAY_DECIDE: bool | Sequence[str] = False
    """Where several must agree: whether the yes of who edited the call counts as one of them."""
    CLAIM_SECONDS: float = 900.0
    """How long a claim keeps others from claiming the same. It never keeps from deciding."""
    BULK_UP_TO: str | int = "50"
    """The largest amount that may be approved among others in one go. Declining has no limit."""
    BULK_STEP: int = 50
    """How many approvals of a bulk action are decided per request."""
    FATIGUE_SECONDS: float = 3.0
    """A decision taken faster than this after the page was shown is counted as unread."""
    REMINDERS: int = 3
    """How often people are reminded of one that waits, `remind_after` of its rule apart; at least
    once."""
    SITE_URL: str = ""
    """Where the admin is reached from outside, for links in notices: https://agents.example.com"""
    MAIL: bool = False
    """Whether people who may decide are told by mail."""
    MAIL_FROM: str = ""
    """The sender of that mail. Empty: `DEFAULT_FROM_EMAIL`."""
    WEBHOOKS: Sequence[Mapping[str, str]] = ()
    """Signed notices: {"name", "url", "secret"} each, in the form of standardwebhooks.com."""
    SLACK: Sequence[Mapping[str, str]] = ()
    """Slack incoming webhooks: {"name", "url"} each."""
    OUTBOUND_PRIVATE: bool = False
    """Whether webhooks may go to private addresses and plain http: for closed networks."""
    SEND_TIMEOUT_SECONDS: float = 10.0
    SEND_TRIES: int = 8
    """How often a notice is tried before it is given up, with growing pauses."""
    SEND_STEP: int = 20
    """How many notices one sweep sends at most."""


@cache
def approval_settings() -> Settings:
    """Return the settings in force. Raises `ImproperlyConfigured` for what it cannot be."""
    return read_settings("APPROVALS", Settings)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "APPROVALS":
        approval_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="approvals.conf")
