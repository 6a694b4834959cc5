"""What the OpenAPI page says of all views alike: the error body, its statuses, shared headers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from agentruntime.serializers import ErrorBody

_ERRORS = {
    400: "The request is not valid; `detail` names the field.",
    401: "Nobody is logged in and no good token was sent.",
    403: "The caller may not do this, or the token has another scope.",
    404: "There is no such thing, or it is not the caller's to see.",
    413: "The body is larger than what is taken.",
    415: "The body is no JSON.",
    429: "Too many calls; `Retry-After` says when the next is taken.",
    503: "The database does not answer; `Retry-After` says when to try again.",
}
ERRORS: dict[int, Any] = {
    status: OpenApiResponse(ErrorBody, description=text)
    for status, text in _ERRORS.items()
    if status not in (413, 415)  # `add_errors` does, where there is a body
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


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How a token is sent."""

    target_class = "agentruntime.tokens.ScopedTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token <token>`; a token is made at `POST /api/v1/tokens/`.",
        }


class PasswordScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How a token is made without a session."""

    target_class = "agentruntime.token_views.CountedBasicAuthentication"
    name = "password"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}


def add_errors(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Document on every call what any of them may answer (a hook of drf-spectacular)."""
    body = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    for path in result.get("paths", {}).values():
        for call in path.values():
            if not isinstance(call, dict) or "responses" not in call:
                continue
            for status, text in _ERRORS.items():
                if status in (413, 415) and "requestBody" not in call:
                    continue
                call["responses"].setdefault(str(status), {"description": text, "content": body})
    for name, schema in result.get("components", {}).get("schemas", {}).items():
        if name.endswith("Request") and schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
    return result
