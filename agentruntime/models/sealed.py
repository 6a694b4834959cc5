"""Secrets that have to be read again, sealed with a key that comes from `SECRET_KEY`.

A copy of the database alone opens none of them. What an older key sealed is opened for as long as
that key stands in `SECRET_KEY_FALLBACKS`.
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.crypto import salted_hmac

SALT = "agentruntime.sealed"


def seal(text: str) -> str:
    """Return `text` encrypted with today's key; two calls give two results."""
    return _keys().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str | None:
    """Return what was sealed; None where no key of the settings opens it, or it was changed."""
    try:
        return _keys().decrypt(sealed).decode()
    except InvalidToken:
        return None


def seal_anew(sealed: str) -> str:
    """Return it as today's key seals it; as it is where that key, or none, opens it."""
    try:
        Fernet(_key_from(settings.SECRET_KEY)).decrypt(sealed)
    except InvalidToken:
        text = unseal(sealed)
        return sealed if text is None else seal(text)
    return sealed


def _keys() -> MultiFernet:
    known = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(_key_from(one)) for one in known])


def _key_from(secret: str) -> bytes:
    digest = salted_hmac(SALT, "", secret=secret, algorithm="sha256").digest()
    return base64.urlsafe_b64encode(digest)
