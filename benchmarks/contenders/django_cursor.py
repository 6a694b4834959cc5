"""Floor: one prepared statement for a step, through Django's own cursor.

Django prepares nothing by default; `server_side_binding` and `prepare_threshold` turn it on.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection

from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders.floor import Floor, StaleState


def configure(dsn: str) -> None:
    """Set Django up over one database, with persistent connections."""
    url = urlsplit(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.lstrip("/"),
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.hostname or "",
        "PORT": url.port or "",
        "CONN_MAX_AGE": None,
        "OPTIONS": {"server_side_binding": True, "prepare_threshold": 0},
    }
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()


class Contender(Floor):
    """Django's connections, one for each thread, in autocommit."""

    def load(self) -> None:
        configure(self.place.dsn)
        connection.vendor  # noqa: B018 - imports the backend

    def rows(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        """Run one statement that returns rows."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    def run(self, statement: str, values: Any) -> None:
        """Run one statement that returns nothing."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)

    def open_thread(self, thread: str) -> None:
        self.run(sql.OPEN_THREAD, (thread,))

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        rows = self.rows(sql.STEP, sql.step_values(thread, version, content, role))
        if not rows:
            raise StaleState(thread)
        return rows[0][0]

    def history(self, thread: str) -> list[tuple[str, str]]:
        return self.rows(sql.HISTORY, (thread,))  # type: ignore[return-value]

    def record(self, thread: str, calls: list[str]) -> None:
        self.run(sql.RESULTS, (thread, calls, ['{"ok": true}'] * len(calls)))

    def ask(self, thread: str, contents: list[str]) -> None:
        self.run(sql.FILL_HISTORY, (thread, contents))
        self.run(sql.ASK, (len(contents), thread))

    def decide(self, thread: str) -> int:
        rows = self.rows(sql.ANSWER, (json.dumps({"approved": True}), thread))
        if not rows:
            raise StaleState(thread)
        return rows[0][0]
