"""How an invariant is written, and how all of them are asked."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils.module_loading import autodiscover_modules

from agentruntime.models import Event, Thread


@dataclass(frozen=True)
class Violation:
    """One row that must not be there."""

    invariant: str
    thread: str
    run: str
    detail: str


@dataclass(frozen=True)
class Scope:
    """Which threads are looked at: all, one, or those with news since a moment."""

    thread: uuid.UUID | None = None
    since: datetime | None = None

    def threads(self) -> Any:
        """The threads as a queryset of their ids."""
        found = Thread.objects.order_by()
        if self.thread is not None:
            found = found.filter(pk=self.thread)
        if self.since is not None:
            news = Event.objects.filter(at__gte=self.since).order_by()
            found = found.filter(pk__in=news.values("thread_id").distinct())
        return found.values("id")


Check = Callable[[Scope], Iterator[tuple[Any, Any, Any]]]


@dataclass(frozen=True)
class Invariant:
    """A sentence that holds, and what finds its exceptions.

    `query` selects (thread id, run id, detail) and names the threads it is about as `scope`, a
    table with the column `id`; `{data.key}` stands for a text member of the JSON column `data`.
    `check` does the same in Python where SQL would be no clearer.
    """

    name: str
    sentence: str
    query: str = ""
    check: Check | None = None

    def violations(self, scope: Scope) -> Iterator[Violation]:
        """Find the exceptions."""
        rows = self.check(scope) if self.check else self._asked(scope)
        for thread, run, detail in rows:
            yield Violation(self.name, _ident(thread), _ident(run), str(detail))

    def _asked(self, scope: Scope) -> Iterator[tuple[Any, Any, Any]]:
        within, parameters = scope.threads().query.sql_with_params()
        query = re.sub(r"\{(\w+(?:\.\w+)?)\.(\w+)\}", _json_member, self.query)
        with connection.cursor() as cursor:
            cursor.execute(f"WITH scope AS ({within}) {query}", parameters)
            yield from cursor.fetchall()


def _json_member(found: re.Match[str]) -> str:
    column, member = found.groups()
    if connection.vendor == "postgresql":
        return f"({column} ->> '{member}')"
    return f"json_extract({column}, '$.{member}')"


def _ident(value: Any) -> str:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        return "" if value is None else str(value)


_registered: list[Invariant] = []


def register_invariants(added: Sequence[Invariant]) -> None:
    """Have these asked too."""
    _registered.extend(added)


def invariants() -> list[Invariant]:
    """All that are known, those of the installed apps among them."""
    autodiscover_modules("invariants")
    return list(_registered)


def find_violations(scope: Scope | None = None) -> Iterator[Violation]:
    """Ask every invariant; yields what it finds, nothing for a sound history."""
    for one in invariants():
        yield from one.violations(scope or Scope())
