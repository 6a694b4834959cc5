"""Who is calling: a session or a token, and whether it still holds.

A `Credential` is what can be looked up again while a socket is open: a logout, an expired or
revoked token, a deactivated user or a lost permission is seen at the next look.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from knox.models import get_token_model

from agentruntime.models import Run, Thread, tenant_of
from agentruntime.tokens import authenticate_token, scopes_of

NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
NOT_FOUND = 4404
TOO_SLOW = 4408
TOO_MANY = 4429
TRY_LATER = 1013
REASONS = {
    1009: "This message is too big.",
    1011: "Something went wrong; it was noted.",
    4400: "`after` must be the number of an event.",
    NOT_AUTHENTICATED: "No session or token that holds and may read.",
    NOT_ALLOWED: "This is not allowed.",
    NOT_FOUND: "There is nothing here that you may see.",
    TOO_SLOW: "This client takes its events too slowly.",
    TOO_MANY: "Too many sockets or messages.",
    TRY_LATER: "The database does not answer; try again.",
}
"""What a socket is told beside its close code."""
SAME_LOOK_SECONDS = 1.0
MAX_RECENT = 5_000


@dataclass(frozen=True)
class Credential:
    """A user, and the session or the token that stands for them."""

    user_id: Any
    session_key: str = ""
    token_digest: str = ""


def credential_of_token(token: str) -> Credential | None:
    """Return the credential for a token as its owner sends it; None where it is not good."""
    found = authenticate_token(token)
    return None if found is None else Credential(found.user_id, token_digest=found.digest)


def credential_of_session(session: Any) -> Credential | None:
    """Return the credential for a session of a logged-in user."""
    user_id = session.get(SESSION_KEY) if session is not None else None
    return Credential(str(user_id), session_key=session.session_key) if user_id else None


def user_of(credential: Credential) -> Any:
    """Return the active user that the credential still stands for, freshly read, or None."""
    user = get_user_model()._default_manager.filter(pk=credential.user_id, is_active=True).first()
    if user is None:
        return None
    if credential.token_digest:
        return user if _token_holds(credential.token_digest) else None
    return user if _session_holds(credential.session_key, user) else None


def _token_holds(digest: str) -> bool:
    token = get_token_model().objects.filter(pk=digest).first()
    if token is None or (token.expiry is not None and token.expiry < timezone.now()):
        return False
    return "read" in scopes_of(token)


def _session_holds(key: str, user: Any) -> bool:
    stored = import_module(settings.SESSION_ENGINE).SessionStore(key)
    if str(stored.get(SESSION_KEY)) != str(user.pk):
        return False
    given = stored.get(HASH_SESSION_KEY) or ""
    return any(
        constant_time_compare(given, known)
        for known in (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    )


def refusal(
    credential: Credential | None, thread_id: uuid.UUID, run_id: uuid.UUID | None = None
) -> int | None:
    """Return the close code for a caller who may not watch this thread, or this run, now."""
    user = user_of(credential) if credential is not None else None
    if user is None:
        return NOT_AUTHENTICATED
    return None if may_watch(user, thread_id, run_id) else NOT_FOUND


def may_watch(user: Any, thread_id: uuid.UUID, run_id: uuid.UUID | None = None) -> bool:
    """Say whether `Thread.objects.visible_to(user)` has this thread, in one query for its owner.

    A run may also be watched by whom the admin shows it.
    """
    place = Thread.objects.filter(pk=thread_id).values_list("user_id", "tenant").first()
    if place is None or place[1] != tenant_of(user):
        return False
    if place[0] == user.pk or user.has_perm("agentruntime.view_thread"):
        return True
    in_admin = user.is_staff and user.has_perm("agentruntime.view_run")
    return run_id is not None and bool(in_admin)


Look = tuple[Credential, uuid.UUID, uuid.UUID | None]
_recent: dict[Look, tuple[float, int | None]] = {}


def refusal_again(
    credential: Credential, thread_id: uuid.UUID, run_id: uuid.UUID | None = None
) -> int | None:
    """Return what `refusal` does; a look of the last second serves all sockets of a user."""
    now = time.monotonic()
    place = (credential, thread_id, run_id)
    if place in _recent and now - _recent[place][0] < SAME_LOOK_SECONDS:
        return _recent[place][1]
    code = refusal(credential, thread_id, run_id)
    if len(_recent) > MAX_RECENT:
        _recent.clear()
    _recent[place] = (now, code)
    return code


def thread_of_run(run_id: uuid.UUID) -> uuid.UUID | None:
    """Return the thread of a run, or None."""
    found: uuid.UUID | None = (
        Run.objects.filter(pk=run_id).values_list("thread_id", flat=True).first()
    )
    return found
