"""Floor: as `django_cursor`, with the steps of a process committed in groups."""

from __future__ import annotations

from benchmarks.contenders import django_cursor
from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders.committer import Committer


class Contender(django_cursor.Contender):
    """One connection writes for all threads."""

    def open(self) -> None:
        super().open()
        self.committer = Committer(lambda columns: self.rows(sql.STEPS, columns))

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        return self.committer.put(thread, version, content, role)
