"""Rates that hold: the count is one statement in the database, so parallel calls cannot slip by.

A view names its kind of call in `throttle_scope`, or by action in `throttle_scopes`. A kind is
limited per caller (the user; the address for who is not logged in) and span of time.
"""

from __future__ import annotations

import re
import time
import unicodedata
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from rest_framework.throttling import BaseThrottle

from agentruntime.conf import runtime_settings
from agentruntime.models import RateWindow

DEFAULT_LIMITS = {
    "login": "10/min",
    "login-address": "60/min",
    "token": "10/min",
    "run": "3000/min",
    "decide": "600/min",
    "callback": "3000/min",
}
SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
RATE = re.compile(r"(\d+)/(\d*)([a-z]+)")
KEEP_SECONDS = 2 * 86_400


def read_rate(text: str) -> tuple[int, int]:
    """Return (calls, seconds) of a rate such as "60/min" or "5/10s". Raises `ValueError`."""
    found = RATE.fullmatch(text.strip())
    if found is None or found[3] not in SECONDS:
        raise ValueError(f"{text!r} is no rate; it is written as in 60/min or 5/10s.")
    return int(found[1]), int(found[2] or 1) * SECONDS[found[3]]


def seconds_to_wait(scope: str, caller: str) -> int:
    """Count a call; return 0 where it may go on, else in how many seconds the next span begins."""
    rate = runtime_settings().RATE_LIMITS.get(scope, DEFAULT_LIMITS.get(scope, ""))
    if not rate:
        return 0
    calls, seconds = read_rate(rate)
    now = int(time.time())
    starts_at = now - now % seconds
    if RateWindow.take(f"{scope}:{caller}"[:200], starts_at, calls):
        return 0
    return starts_at + seconds - now


def address_of(request: Any) -> str:
    """Return the caller's address as the server saw it; a header could be anybody's.

    Of IPv6 it is the network of 64 bits: within it one caller has as many addresses as they like.
    """
    given = str(request.META.get("REMOTE_ADDR") or "unknown")
    try:
        address = ip_address(given)
    except ValueError:
        return given
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Network((int(address), 64), strict=False))
    return given


def seconds_until_login(request: Any, name: str) -> int:
    """Count a try of a password; return 0 where it may be looked at, else the seconds to wait.

    Counted per address, and per address and name (`login`). Not per name alone: whoever knows a
    name could keep its owner out.
    """
    address = address_of(request)
    name = unicodedata.normalize("NFKC", name).strip().lower()  # one name, however it is written
    wait = seconds_to_wait("login-address", address)
    return wait or seconds_to_wait("login", f"{address} {name[:100]}")


class ScopedRate(BaseThrottle):
    """The throttle of the API; does nothing for views that name no scope."""

    def __init__(self) -> None:
        self._wait = 0

    def allow_request(self, request: Any, view: Any) -> bool:
        by_action = getattr(view, "throttle_scopes", {})
        action = getattr(view, "action", None) or ""
        scope = by_action.get(action) or getattr(view, "throttle_scope", None)
        if not scope:
            return True
        user = request.user
        caller = f"user {user.pk}" if user and user.is_authenticated else address_of(request)
        self._wait = seconds_to_wait(scope, caller)
        return not self._wait

    def wait(self) -> float | None:
        return self._wait or None
