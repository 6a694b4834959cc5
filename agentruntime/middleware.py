"""Gates before every handler: what may come in at all, and how often a password may be tried.

JSON bodies are read once, strictly, before any view: size, depth, keys, duplicate keys, NUL, lone
surrogates, NaN and infinities, numbers without end. The text of forms (the admin's too), queries
and paths must be text that every database takes. What does not pass is a 400 that names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.http.request import UnreadablePostError

from agentruntime.conf import runtime_settings
from agentruntime.graph.json_values import NotJson, check_text, read_json
from agentruntime.throttles import seconds_until_login

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
Handler = Callable[[HttpRequest], HttpResponse]


def refusal(status: int, code: str, detail: str, **more: Any) -> HttpResponse:
    """Return the API's error body."""
    return JsonResponse({"code": code, "detail": detail, **more}, status=status)


class JsonGate:
    """Middleware: stands before sessions and views."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            self._check(request)
        except NotJson as error:
            path = error.path.encode(errors="replace").decode()
            return refusal(400, "JSON_001", f"{path}: {error.reason}", path=path)
        except RequestDataTooBig:
            return refusal(413, "too_large", "The body is larger than what is taken.")
        except (TooManyFieldsSent, MultiPartParserError, UnicodeError, ValueError):
            return refusal(400, "parse_error", "The form is not one that can be read.")
        except UnreadablePostError:
            return refusal(400, "parse_error", "The body did not come whole.")
        return self.get_response(request)

    def _check(self, request: HttpRequest) -> None:
        check_text(request.path, "path")
        _check_fields(request.GET.lists(), "query")
        if request.method in ("GET", "HEAD", "OPTIONS") or not request.content_type:
            return
        if request.content_type in FORMS:
            _check_fields(request.POST.lists(), "form")
            check_text("".join(one.name or "" for one in request.FILES.values()), "form")
        elif request.content_type.endswith(("/json", "+json")):
            body = self._body(request)
            if body.strip():
                read_json(body, max_bytes=runtime_settings().MAX_BODY_BYTES)

    def _body(self, request: HttpRequest) -> bytes:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if length.isdecimal() and int(length) > runtime_settings().MAX_BODY_BYTES:
            raise RequestDataTooBig
        return bytes(request.body)


def _check_fields(fields: Iterable[tuple[str, list[Any]]], where: str) -> None:
    for name, values in fields:
        check_text(name, where)
        for value in values:
            if isinstance(value, str):
                check_text(value, f"{where}.{name}")


def _tries_a_password(request: HttpRequest) -> bool:
    is_form = request.method == "POST" and request.content_type in FORMS
    return is_form and "password" in request.POST


class LoginGate:
    """Middleware: counts each try of a password, whatever page takes it.

    A try is a POST with a field `password`; its counts are in the database, so parallel tries
    cannot slip by, and without a database nobody logs in.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _tries_a_password(request):
            wait = seconds_until_login(request, str(request.POST.get("username", "")))
            if wait:
                response = refusal(429, "throttled", f"Too many tries; wait {wait} seconds.")
                response["Retry-After"] = str(wait)
                return response
        return self.get_response(request)
