"""One error body for the whole API: `{"code", "detail"}`, and where it helps `errors` and `facts`.

An error of the runtime keeps its code; what it means over HTTP is its `status`, or stands in the
table below. A database that is away is 503 with `Retry-After`, never a page of its own.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_handler
from rest_framework.views import set_rollback

from agentruntime import signals
from agentruntime.exceptions import (
    AgentRuntimeError,
    AlreadyAnswered,
    CallbackUnknown,
    CheckpointNotFound,
    IdempotencyConflict,
    IllegalTransition,
    InterruptNotFound,
    RunNotFound,
    StaleState,
    ThreadBusy,
    ThreadNotFound,
    WrongDoor,
)
from agentruntime.models.transactions import empty_pool

RETRY_SECONDS = 2
STATUS: dict[type[AgentRuntimeError], int] = {
    ThreadNotFound: 404,
    CallbackUnknown: 404,
    RunNotFound: 404,
    CheckpointNotFound: 404,
    InterruptNotFound: 404,
    ThreadBusy: 409,
    IdempotencyConflict: 409,
    AlreadyAnswered: 409,
    IllegalTransition: 409,
    WrongDoor: 409,
    StaleState: 409,
}


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the answer that an exception of a view becomes; None for what nobody foresaw."""
    if isinstance(error, AgentRuntimeError):
        set_rollback()
        return _of_the_runtime(error)
    if isinstance(error, IntegrityError):
        set_rollback()
        return Response({"code": "conflict", "detail": "Something of this name is there."}, 409)
    if isinstance(error, OperationalError | InterfaceError):
        empty_pool()
        return _unavailable(error)
    response = drf_handler(_as_api_exception(error), context)
    if response is not None:
        response.data = _body(_as_api_exception(error), response.data)
    return response


def _of_the_runtime(error: AgentRuntimeError) -> Response:
    status = getattr(error, "status_code", None) or _status_of(error)
    facts = {name: _plain(value) for name, value in error.facts.items()}
    response = Response({"code": error.code, "detail": str(error), "facts": facts}, status)
    if isinstance(error, ThreadBusy):
        response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _status_of(error: AgentRuntimeError) -> int:
    # A class says it itself (a fact may be called `status` too, and lies on the instance), or the
    # table does.
    own = getattr(type(error), "status", None)
    if isinstance(own, int):
        return own
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 400)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int) else str(value)[:500]


def _unavailable(error: DatabaseError | InterfaceError) -> Response:
    facts = {"error": type(error).__name__}
    signals.noticed.send(None, level="error", event="database_away", facts=facts, exc_info=error)
    body = {"code": "unavailable", "detail": "The database does not answer; try again."}
    return Response(body, 503, headers={"Retry-After": str(RETRY_SECONDS)})


def _as_api_exception(error: Exception) -> Exception:
    if isinstance(error, Http404):
        return exceptions.NotFound()
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied()
    return error


def _body(error: Exception, data: Any) -> dict[str, Any]:
    if isinstance(error, exceptions.ValidationError):
        errors = data if isinstance(data, dict) else {"non_field_errors": data}
        return {"code": "invalid", "detail": _first(errors), "errors": errors}
    if isinstance(error, exceptions.APIException):
        detail = error.detail
        code = getattr(detail, "code", None) or error.default_code
        return {"code": str(code), "detail": str(detail)}
    return {"code": "error", "detail": str(data)}


def _first(errors: Any, path: str = "") -> str:
    """Return the first finding of a validation error as one line that begins with its field."""
    while isinstance(errors, dict | list) and errors:
        key, errors = next(iter(errors.items() if isinstance(errors, dict) else enumerate(errors)))
        if key != "non_field_errors" and isinstance(errors, dict | list):
            path = f"{path}.{key}".lstrip(".")
    return f"{path}: {errors}" if path else str(errors)


def not_found(request: HttpRequest, exception: Exception | None = None) -> Any:
    """The site's 404: the API's body under /api/, Django's page elsewhere."""
    if request.path.startswith("/api/"):
        return JsonResponse({"code": "not_found", "detail": "Not found."}, status=404)
    return defaults.page_not_found(request, exception or Http404())


def server_error(request: HttpRequest) -> Any:
    """The site's 500: the same; neither says what went wrong, which stands in the log."""
    if request.path.startswith("/api/"):
        body = {"code": "server_error", "detail": "Something went wrong; it was noted."}
        return JsonResponse(body, status=500)
    return defaults.server_error(request)
