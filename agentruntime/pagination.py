"""Pages by cursor: opaque, ordered by something unique, so nothing is skipped or doubled."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound
from rest_framework.exceptions import ValidationError as BadRequest
from rest_framework.pagination import CursorPagination


class Newest(CursorPagination):
    """The newest first; `page_size` up to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def get_page_size(self, request: Any) -> int:
        """Return how many rows the caller wants. Raises `ValidationError` for what is no number."""
        text = request.query_params.get(self.page_size_query_param, str(self.page_size))
        if not text.isascii() or not text.isdecimal() or not 0 < len(text.lstrip("0")) < 10:
            raise BadRequest({"page_size": ["A whole number above zero was expected."]})
        return min(int(text), self.max_page_size)

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> Any:
        """Return one page. Raises `ValidationError` for a cursor that somebody made up."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, ValidationError, ValueError, OverflowError, DataError):
            raise BadRequest({"cursor": ["This is no cursor of this list."]}) from None


class ByOrdinal(Newest):
    """Messages in their order."""

    ordering = "ordinal"


class ByVersion(Newest):
    """Checkpoints, the newest first."""

    ordering = "-version"


class ById(Newest):
    """Rows of the ledger in the order in which their calls were asked for."""

    ordering = "id"
