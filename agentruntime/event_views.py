"""The events of a run or thread over HTTP: a page of them, or a stream (SSE) that goes on.

The same address gives both: JSON by `?after=SEQ`, and with `Accept: text/event-stream` the events
after `Last-Event-ID` (or `after`) and then live ones, by the rules of the websocket.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import Throttled, ValidationError
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from agentruntime import serializers as bodies
from agentruntime import streams
from agentruntime.api_docs import ERRORS
from agentruntime.credentials import Credential
from agentruntime.models import Event, Run
from agentruntime.stored_events import PAGE, event_body, oldest_seq

MAX_SEQ = 2**63 - 1
SEQ = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}


class EventStreamRenderer(BaseRenderer):
    """Lets `Accept: text/event-stream` be asked for; an error is still JSON."""

    media_type = "text/event-stream"
    format = "sse"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return JSONRenderer().render(data)


class EventsMixin:
    """Adds `events/` to a viewset of runs or threads."""

    @extend_schema(
        parameters=[
            OpenApiParameter("after", SEQ, description="Events after this number."),
            OpenApiParameter("Last-Event-ID", SEQ, OpenApiParameter.HEADER),
        ],
        responses={
            (200, "application/json"): bodies.EventPage,
            (200, "text/event-stream"): OpenApiResponse(OpenApiTypes.OBJECT),
            **ERRORS,
        },
    )
    @action(
        detail=True,
        methods=["get"],
        renderer_classes=[JSONRenderer, EventStreamRenderer],
        pagination_class=None,
        filter_backends=[],
    )
    def events(self: Any, request: Request, pk: uuid.UUID) -> Any:
        """Stored events after a number, in order; as a stream, the live ones too."""
        found = self.get_object()
        run_id = found.pk if isinstance(found, Run) else None
        thread_id = found.thread_id if isinstance(found, Run) else found.pk
        if request.accepted_renderer.format == "sse":
            after = read_seq(request, "Last-Event-ID", request.headers.get("Last-Event-ID"))
            return self._stream(request, thread_id, run_id, after)
        return _page(thread_id, run_id, read_seq(request))

    def _stream(
        self, request: Request, thread_id: uuid.UUID, run_id: uuid.UUID | None, after: int
    ) -> StreamingHttpResponse:
        credential = _credential(request)
        frames = streams.frames(request._request, credential, thread_id, run_id, after)
        if frames is None:
            raise Throttled(detail="This user has too many streams open.")
        response = StreamingHttpResponse(frames, content_type="text/event-stream")
        response["Cache-Control"] = "no-cache, no-store"
        response["X-Accel-Buffering"] = "no"
        return response


def _credential(request: Request) -> Credential:
    digest = getattr(request.auth, "digest", "")
    if digest:
        return Credential(request.user.pk, token_digest=digest)
    session = getattr(request._request, "session", None)
    return Credential(request.user.pk, session_key=getattr(session, "session_key", None) or "")


def read_seq(request: Request, name: str = "after", given: str | None = None) -> int:
    """Return the number that the caller names, 0 where there is none. Raises `ValidationError`."""
    text = given if given is not None else request.query_params.get("after", "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= MAX_SEQ):
        raise ValidationError({name: ["A whole number of events was expected."]})
    return int(text)


def _page(thread_id: uuid.UUID, run_id: uuid.UUID | None, after: int) -> Response:
    rows = Event.objects.filter(thread_id=thread_id, seq__gt=after).order_by("seq")
    if run_id is not None:
        rows = rows.filter(run_id=run_id)
    found = list(rows[: PAGE + 1])
    shown, more = found[:PAGE], len(found) > PAGE
    oldest = oldest_seq(thread_id)
    return Response(
        {
            "results": [event_body(one) for one in shown],
            "next_after": shown[-1].seq if shown else after,
            "more": more,
            "oldest": oldest if oldest is not None and after + 1 < oldest else None,
        }
    )
