"""Floor: psycopg, one prepared statement for a step, one connection for a thread."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg

from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders.floor import Floor, StaleState


class Contender(Floor):
    """psycopg in autocommit, so that a statement is a transaction."""

    local = threading.local()

    def execute(self, statement: str, values: Any) -> psycopg.Cursor[Any]:
        """Run one statement on this thread's own connection."""
        if not hasattr(self.local, "connection"):
            self.local.connection = psycopg.connect(
                self.place.dsn, autocommit=True, prepare_threshold=0
            )
        return self.local.connection.execute(statement, values)

    def open_thread(self, thread: str) -> None:
        self.execute(sql.OPEN_THREAD, (thread,))

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        row = self.execute(sql.STEP, sql.step_values(thread, version, content, role)).fetchone()
        if row is None:
            raise StaleState(thread)
        return row[0]

    def history(self, thread: str) -> list[tuple[str, str]]:
        return self.execute(sql.HISTORY, (thread,)).fetchall()

    def record(self, thread: str, calls: list[str]) -> None:
        self.execute(sql.RESULTS, (thread, calls, ['{"ok": true}'] * len(calls)))

    def ask(self, thread: str, contents: list[str]) -> None:
        self.execute(sql.FILL_HISTORY, (thread, contents))
        self.execute(sql.ASK, (len(contents), thread))

    def decide(self, thread: str) -> int:
        row = self.execute(sql.ANSWER, (json.dumps({"approved": True}), thread)).fetchone()
        if row is None:
            raise StaleState(thread)
        return row[0]
