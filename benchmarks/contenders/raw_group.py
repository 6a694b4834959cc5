"""Floor: as `raw`, with the steps of a process committed in groups."""

from __future__ import annotations

from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders import raw
from benchmarks.contenders.committer import Committer


class Contender(raw.Contender):
    """One connection writes for all threads."""

    def open(self) -> None:
        super().open()
        self.committer = Committer(lambda columns: self.execute(sql.STEPS, columns).fetchall())

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        return self.committer.put(thread, version, content, role)
