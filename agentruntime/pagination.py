"""Pages by cursor: opaque, ordered by something unique, so nothing is skipped or doubled."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination


class Newest(CursorPagination):
    """The newest first; `page_size` up to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> Any:
        """Return one page. A cursor that somebody made up is not found, whatever it says."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError, OverflowError, DataError):
            raise NotFound(self.invalid_cursor_message) from None


class ByOrdinal(Newest):
    """Messages in their order."""

    ordering = "ordinal"


class ByVersion(Newest):
    """Checkpoints, the newest first."""

    ordering = "-version"


class ById(Newest):
    """Rows of the ledger in the order in which their calls were asked for."""

    ordering = "id"
