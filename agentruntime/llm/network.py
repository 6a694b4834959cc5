"""The switch that lets no request leave this machine. Tests turn it off and mean it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from agentruntime.exceptions import ModelRequestsOff

_off = False


def refuse_real_requests(refuse: bool = True) -> None:
    """Let every model request of this process fail that does not go to this machine itself."""
    global _off
    _off = refuse


@contextmanager
def real_requests_refused() -> Iterator[None]:
    """Refuse real requests inside a `with` block."""
    before = _off
    refuse_real_requests()
    try:
        yield
    finally:
        refuse_real_requests(before)


def check_request(model: str, base_url: str | None, *, allowed: bool = True) -> None:
    """Raise `ModelRequestsOff` if a request to `base_url` may not be made now.

    A model without an address (a scripted one of the library) makes no request.
    """
    if (allowed and not _off) or base_url is None:
        return
    host = urlsplit(base_url).hostname or ""
    if not _is_this_machine(host):
        raise ModelRequestsOff(model=model, host=host or "an unknown host", attempts=0)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
