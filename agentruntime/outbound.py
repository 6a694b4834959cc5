"""Calling an address that somebody else chose, without being led into one's own network (SSRF).

The name is resolved once, every address it has is checked, and the connection goes to a checked
address, so a second look-up cannot answer differently. Redirects are not followed. Private,
loopback, link-local and translated ranges are refused unless `WEBHOOK_ALLOWED_NETWORKS` names them.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import time
from urllib.parse import SplitResult, urlsplit

from agentruntime.conf import runtime_settings

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 65_536
PORTS = (443, 8443)
TRANSLATED = [
    ipaddress.ip_network(one)
    for one in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """The address may not be called, now or later."""


def check_url(url: str) -> SplitResult:
    """Return the parts of an address that has the right form. Raises `Refused`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("The address is not valid.") from None
    if not parts.hostname or parts.username or parts.password:
        raise Refused("The address needs a host, and no name or password.")
    if any(ord(one) <= 32 or ord(one) > 126 for one in url):
        raise Refused("The address has characters that are not allowed in one.")
    if parts.scheme != "https" and not (parts.scheme == "http" and _allowed_networks()):
        raise Refused("The address must begin with https://.")
    if parts.scheme == "https" and port not in (None, *PORTS) and not _allowed_networks():
        raise Refused(f"The port must be one of {', '.join(map(str, PORTS))}.")
    return parts


def checked_address(parts: SplitResult) -> str:
    """Resolve a host and return one address of it, all of which were checked. Raises `Refused`."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]).split("%")[0] for one in found]
    for one in addresses:
        if not is_public(one) and not _is_allowed(one):
            raise Refused(f"{host} leads to an address that is not public.")
        if parts.scheme == "http" and not _is_allowed(one):
            raise Refused("The address must begin with https://.")
    return addresses[0]


def is_public(address: str) -> bool:
    """Say whether an address is one of the open internet, and not one in disguise."""
    found: Address = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in network for network in TRANSLATED):
            return False
    return found.is_global and not found.is_multicast


def _allowed_networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(one) for one in runtime_settings().WEBHOOK_ALLOWED_NETWORKS]


def _is_allowed(address: str) -> bool:
    return any(ipaddress.ip_address(address) in network for network in _allowed_networks())


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """Send a POST and return the status. Raises `Refused`, and `OSError` for all that may pass."""
    parts = check_url(url)
    connection = _connection(parts, checked_address(parts))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    ends = time.monotonic() + TIMEOUT_SECONDS
    try:
        connection.request("POST", target, body, {**headers, "Host": parts.netloc})
        answer = connection.getresponse()
        _drain(answer, ends)
        return answer.status
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _drain(answer: http.client.HTTPResponse, ends: float) -> None:
    """Read a little of the answer, so that nobody is cut off; never much, never long."""
    left = MAX_ANSWER_BYTES
    while left > 0 and time.monotonic() < ends and (part := answer.read1(min(left, 8192))):
        left -= len(part)


def _connection(parts: SplitResult, address: str) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "http":
        plain = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        plain.sock = socket.create_connection((address, plain.port), TIMEOUT_SECONDS)
        return plain
    secure = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS)
    raw = socket.create_connection((address, secure.port), TIMEOUT_SECONDS)
    secure.sock = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    return secure
