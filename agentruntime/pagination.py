"""Pages by cursor: opaque, ordered by something unique, so nothing is skipped or doubled."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class Newest(CursorPagination):
    """The newest first; `page_size` up to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


class ByOrdinal(Newest):
    """Messages in their order."""

    ordering = "ordinal"


class ByVersion(Newest):
    """Checkpoints, the newest first."""

    ordering = "-version"


class ById(Newest):
    """Rows of the ledger in the order in which their calls were asked for."""

    ordering = "id"
