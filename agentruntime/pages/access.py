"""Who sees a page, and under which rules a browser shows it."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.cache import never_cache

from agentruntime.models import Thread

# All that a page needs is its own; whatever a model writes, nothing else is loaded or run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
View = Callable[..., HttpResponse]


def page(view: View) -> View:
    """Make a view one for logged-in people, never cached, under the pages' content policy."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    checked: View = login_required(never_cache(guarded))
    return checked


def own_thread(request: HttpRequest, thread_id: uuid.UUID) -> Thread:
    """Return a thread of the person who asks; 404 for all others, whatever their rights."""
    return get_object_or_404(Thread.objects.owned_by(request.user), pk=thread_id)
