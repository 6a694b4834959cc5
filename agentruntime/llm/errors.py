"""What went wrong at a provider, as one of our errors: what kind it is, and nothing secret."""

from __future__ import annotations

import re
from collections.abc import Iterable

import httpx2
from pydantic_ai import exceptions as library

from agentruntime.exceptions import (
    ModelAnswerUnreadable,
    ModelContextExceeded,
    ModelCredentialsRefused,
    ModelError,
    ModelQuotaExceeded,
    ModelRateLimited,
    ModelRequestRefused,
    ModelTimedOut,
    ModelUnavailable,
    ModelUnknown,
    ModelUnreachable,
)

# The first that fits counts, so the special ones stand before the general.
FAMILY: tuple[tuple[type[Exception], type[ModelError]], ...] = (
    (library.ModelQuotaExceededError, ModelQuotaExceeded),
    (library.ModelRateLimitError, ModelRateLimited),
    (library.ModelContextWindowExceededError, ModelContextExceeded),
    (library.ModelAuthenticationError, ModelCredentialsRefused),
    (library.ModelNotFoundError, ModelUnknown),
    (library.ModelRequestRejectedError, ModelRequestRefused),
    (library.ModelUnavailableError, ModelUnavailable),
    (library.ModelServerError, ModelUnavailable),
    (library.ModelConnectionError, ModelUnreachable),
    (library.ModelRequestTimeout, ModelUnreachable),
    (httpx2.TransportError, ModelUnreachable),
    (httpx2.StreamError, ModelUnreachable),
    (library.UserError, ModelRequestRefused),
    # Where warnings are errors, the library's advice about a request ends it.
    (Warning, ModelRequestRefused),
)
# Statuses outside of the categories that may pass: request timeout, conflict, too early.
PASSING = {408, 409, 425}
SECRET = re.compile(
    r"(?i)\b(?:sk|rk|pk|key|tok)[-_][\w.-]{6,}|\bbearer\s+\S+|\beyJ[\w-]{10,}[\w.-]*|://[^/@\s]+@"
)
HIDDEN = "[hidden]"


def to_model_error(
    error: Exception, model: str, attempts: int, secrets: Iterable[str] = ()
) -> ModelError:
    """Return the error of ours that says what `error`, raised by the library, means."""
    if isinstance(error, ModelError):
        return error
    return _kind_of(error)(model=model, attempts=attempts, reason=_reason(error, secrets))


def _kind_of(error: Exception) -> type[ModelError]:
    status = error.status_code if isinstance(error, library.ModelHTTPError) else None
    if status in PASSING:
        return ModelUnavailable
    for theirs, ours in FAMILY:
        if isinstance(error, theirs):
            return ours
    if status is not None:
        return ModelRequestRefused if 300 <= status < 500 else ModelUnavailable
    return ModelAnswerUnreadable


def timed_out(model: str, attempts: int) -> ModelTimedOut:
    return ModelTimedOut(model=model, attempts=attempts)


def retry_after(error: Exception) -> float | None:
    """Return the seconds that the provider asked to wait, if it did."""
    return getattr(error, "retry_after", None)


def _reason(error: Exception, secrets: Iterable[str]) -> str:
    if isinstance(error, library.ModelHTTPError):
        kind = error.provider_error_code or error.provider_error_type
        text = f"HTTP {error.status_code}" + (f" {kind}" if kind else "")
        said = _message_in(error.body)
        text += f", {said}" if said else ""
    elif isinstance(error, library.AgentRunError | library.UserError | Warning):
        text = str(getattr(error, "message", error))
    elif isinstance(error, httpx2.TransportError | httpx2.StreamError):
        text = f"{type(error).__name__} {error}"
    else:
        # The text of an error that nobody foresaw may hold anything.
        text = type(error).__name__
    return without_secrets(" ".join(text.split()), secrets)[:300]


def _message_in(body: object) -> str:
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message", "")
        return inner if isinstance(inner, str) else ""
    return body if isinstance(body, str) else ""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with the given secrets, and whatever looks like a key, hidden."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return SECRET.sub(HIDDEN, text)
