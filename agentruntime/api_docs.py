"""What the OpenAPI page says of all views alike: the error body, its statuses, shared headers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from agentruntime.serializers import ErrorBody

_ERRORS = {
    400: "The request is not valid; `detail` names the field.",
    401: "Nobody is logged in and no good token was sent.",
    403: "The caller may not do this, or the token has another scope.",
    404: "There is no such thing, or it is not the caller's to see.",
    429: "Too many calls; `Retry-After` says when the next is taken.",
    503: "The database does not answer; `Retry-After` says when to try again.",
}
ERRORS: dict[int, Any] = {
    status: OpenApiResponse(ErrorBody, description=text) for status, text in _ERRORS.items()
}
CONFLICT: dict[int, Any] = {
    **ERRORS,
    409: OpenApiResponse(
        ErrorBody, description="What is there does not allow this; nothing was changed."
    ),
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Up to 255 printable characters. The same key and body again: the same run, 200. "
    "The same key and another body: 409. Keys are the caller's own.",
)
