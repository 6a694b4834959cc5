"""Pages of the lists that staff see: without the REST framework, as workers load the admin too."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.utils.functional import cached_property


class FirstPages(Paginator):  # type: ignore[type-arg]
    """Pages of a table however large: nothing is counted beyond `MOST` rows, nor shown. Whoever
    wants what lies behind narrows the list, or searches.
    """

    MOST = 2_000

    @cached_property
    def count(self) -> int:
        found: int = self.object_list[: self.MOST].count()
        return found
