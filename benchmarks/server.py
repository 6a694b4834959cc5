"""The PostgreSQL server of a run: fresh databases on it, and what it has counted.

Versions 15 to 18 keep their counts in different views; a count that a version does not have is
None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "full_page_writes",
    "shared_buffers",
    "commit_delay",
)
# Since 18 the log's flushes are counted with all other input and output.
FLUSHES = {
    False: "SELECT wal_sync FROM pg_stat_wal",
    True: "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'",
}


@dataclass(frozen=True)
class Counts:
    """Totals of the server so far: committed transactions of one database, flushes of the log,
    bytes of the log."""

    transactions: int
    flushes: int | None
    wal_bytes: int

    def since(self, before: Counts) -> dict[str, Any]:
        """The differences, by name."""
        flushes = None
        if self.flushes is not None and before.flushes is not None:
            flushes = self.flushes - before.flushes
        return {
            "transactions": self.transactions - before.transactions,
            "flushes": flushes,
            "wal_bytes": self.wal_bytes - before.wal_bytes,
        }


class Server:
    """An administrator's connection to the server of a database URL."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._connection = psycopg.connect(url, autocommit=True)
        self._templates: set[str] = set()

    def dsn(self, database: str) -> str:
        """The URL of another database on the same server."""
        return urlunsplit(self._url._replace(path="/" + database))

    def execute(self, statement: Any, values: Any = None) -> psycopg.Cursor[Any]:
        """Run a statement as the administrator."""
        return self._connection.execute(statement, values)

    def drop(self, database: str) -> None:
        """Drop a database, whoever is connected to it."""
        name = sql.Identifier(database)
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def create(self, database: str, template: str = "template1") -> str:
        """Make a database anew, as a copy of a template; returns its URL."""
        self.drop(database)
        names = sql.Identifier(database), sql.Identifier(template)
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        return self.dsn(database)

    def counts(self, database: str) -> Counts:
        """The totals now. A connection's own are complete only once it has been closed."""
        views = sql.SQL(FLUSHES[self.version >= 180000])
        committed = self.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (database,)
        ).fetchone()
        flushes = self.execute(views).fetchone()
        return Counts(
            committed[0] if committed else 0, flushes[0] if flushes else None, self.wal_bytes()
        )

    def wal_bytes(self) -> int:
        """Bytes of the log written so far, by all databases."""
        row = self.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        return int(row[0]) if row else 0

    def size(self, database: str) -> int:
        """Bytes of all tables of a database, with their indexes."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            row = connection.execute(SIZE).fetchone()
        return int(row[0]) if row else 0

    @property
    def version(self) -> int:
        """The server's version as a number, 150018 for 15.18."""
        return self._connection.info.server_version

    def description(self) -> dict[str, str]:
        """The version and the settings that decide what a commit costs."""
        rows = self.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
            (list(SETTINGS),),
        ).fetchall()
        number = self._connection.info.parameter_status("server_version") or "?"
        return {"PostgreSQL": number, **dict(sorted(rows))}
