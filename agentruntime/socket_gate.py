"""The gate before every websocket: where it comes from, and who it says it is.

A browser sends an origin with each handshake and the cookie by itself, so a foreign page could act
as its user: an origin that is not this site is refused, whoever it is. A program sends none. A
token comes in the `Authorization` header, or from a browser, which cannot set one, as the
subprotocol `token.<token>` beside `agentruntime.v1`; never in the address, which ends up in logs.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agentruntime.credentials import credential_of_session, credential_of_token, user_of
from agentruntime.feeds import in_pool

SUBPROTOCOL = "agentruntime.v1"
TOKEN_SUBPROTOCOL = "token."
LOCAL = ["localhost", "127.0.0.1", "[::1]"]


class SocketGate:
    """ASGI middleware inside of `AuthMiddlewareStack`; sets `credential` and `user`."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not is_own_origin(headers.get(b"origin"), headers.get(b"host")):
            await receive()
            reason = "This page is not of this site."
            # Of the handshake it makes a 403.
            await send({"type": "websocket.close", "code": 4403, "reason": reason})
            return None
        token = token_from(headers.get(b"authorization", ""), scope.get("subprotocols", []))
        found = await in_pool(_look_up, token, scope.get("session"))
        scope = {**scope, "credential": found[0], "subprotocol": own_subprotocol(scope)}
        if token is not None:
            scope["user"] = found[1]
        return await self.application(scope, receive, send)


def _look_up(token: str | None, session: Any) -> tuple[Any, Any]:
    credential = credential_of_token(token) if token is not None else credential_of_session(session)
    return credential, (user_of(credential) if credential else None)


def is_own_origin(origin: str | None, host: str | None) -> bool:
    """Say whether a handshake with this origin comes from this site, or from no page at all."""
    if origin is None:
        return True
    allowed = settings.ALLOWED_HOSTS or (LOCAL if settings.DEBUG else [])
    name = split_domain_port((host or "").lower())[0]
    if host is not None and not validate_host(name, allowed):
        return False
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    if host is None:
        return validate_host(parts.hostname or "", allowed)
    return parts.netloc == host.lower()


def token_from(header: str, subprotocols: list[str]) -> str | None:
    """Return the token of a handshake; "" for one that is malformed, None where there is none."""
    if header:
        kind, _, token = header.partition(" ")
        return token.strip() if kind.lower() in ("token", "bearer") else ""
    for name in subprotocols:
        if name.startswith(TOKEN_SUBPROTOCOL):
            return name.removeprefix(TOKEN_SUBPROTOCOL)
    return None


def own_subprotocol(scope: dict[str, Any]) -> str | None:
    """Return the subprotocol to accept with: never the one that holds the token."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", []) else None
