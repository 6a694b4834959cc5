"""API tokens with scopes: `read`, `run`, `decide`; none has both `run` and `decide`.

What starts an action must not be what allows it, so the two are never in one hand that a program
holds. Tokens are knox's (hashed at rest, expiring, revocable, shown once); a `TokenGrant` beside
each says what it may do. A token without one has `TOKEN_DEFAULT_SCOPES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.utils import timezone
from knox.auth import TokenAuthentication
from knox.models import get_token_model
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import AuthenticationFailed

from agentruntime.conf import runtime_settings
from agentruntime.models import TokenGrant, tenant_of

SCOPES = ("read", "run", "decide")
MAX_TOKEN_CHARACTERS = 200
PREFIXES = (b"token", b"bearer")


class ScopedTokenAuthentication(TokenAuthentication):
    """`Authorization: Token ...` or `Bearer ...`; `request.auth` is the token, with its scopes."""

    def authenticate(self, request: Any) -> tuple[Any, Any] | None:
        given = get_authorization_header(request).split()
        if not given or given[0].lower() not in PREFIXES:
            return None
        if len(given) != 2:
            raise AuthenticationFailed("The Authorization header is not 'Token <token>'.")
        token = authenticate_token(given[1].decode("latin-1"))
        if token is None:
            raise AuthenticationFailed("The token is not valid.")
        return token.user, token


def authenticate_token(text: str) -> Any:
    """Return the token row for the text its owner sends, with `user`; None where it is not good."""
    if not text or len(text) > MAX_TOKEN_CHARACTERS or not text.isascii():
        return None
    try:
        _, token = TokenAuthentication().authenticate_credentials(text.encode())
    except AuthenticationFailed:
        return None
    grant = TokenGrant.of(token.digest)
    if grant is not None and grant.tenant != tenant_of(token.user):
        return None  # the token was made for another tenant
    token.scopes = frozenset(grant.scopes if grant else runtime_settings().TOKEN_DEFAULT_SCOPES)
    return token


def scopes_of(token: Any) -> frozenset[str]:
    """Return what a token may do, freshly read."""
    grant = TokenGrant.of(token.digest)
    return frozenset(grant.scopes if grant else runtime_settings().TOKEN_DEFAULT_SCOPES)


def create_token(
    user: Any, scopes: Iterable[str], *, name: str = "", lifetime: timedelta | None = None
) -> tuple[Any, str]:
    """Make a token and return its row and its text, which is stored nowhere.

    Raises `ValueError` for unknown scopes, and for `run` and `decide` together.
    """
    wanted = sorted(set(scopes))
    if not wanted or set(wanted) - set(SCOPES):
        raise ValueError(f"Scopes are one or more of {', '.join(SCOPES)}.")
    if {"run", "decide"} <= set(wanted):
        raise ValueError("No token has both run and decide.")
    longest = timedelta(days=runtime_settings().TOKEN_DAYS)
    with transaction.atomic():
        token, text = get_token_model().objects.create(
            user=user, expiry=min(lifetime or longest, longest)
        )
        TokenGrant.objects.create(
            digest=token.digest, scopes=wanted, tenant=tenant_of(user), name=name
        )
    return token, text


def live_tokens(user: Any) -> Any:
    """Return the user's tokens that have not expired, newest first."""
    found = get_token_model().objects.filter(user=user).exclude(expiry__lt=timezone.now())
    return found.order_by("-created", "digest")


@receiver(post_delete, dispatch_uid="agentruntime.tokens.forget_grant")
def forget_grant(*, sender: Any, instance: Any, **_: Any) -> None:
    """Delete the grant of a token that is gone: logged out, revoked, expired."""
    if sender is get_token_model():
        TokenGrant.objects.filter(pk=instance.digest).delete()
