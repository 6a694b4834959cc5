"""The database itself refuses to change what was decided: triggers, as SQL for both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

TABLE = "approvals_decision"

POSTGRES_PROTECT = (
    """
    CREATE OR REPLACE FUNCTION approvals_decisions_are_immutable() RETURNS trigger AS $$
    BEGIN
        RAISE EXCEPTION 'decisions are immutable: % refused', TG_OP;
    END;
    $$ LANGUAGE plpgsql
    """,
    f"""
    CREATE TRIGGER decisions_are_immutable BEFORE UPDATE OR DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION approvals_decisions_are_immutable()
    """,
    f"""
    CREATE TRIGGER decisions_are_kept BEFORE TRUNCATE ON {TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION approvals_decisions_are_immutable()
    """,
)
POSTGRES_UNPROTECT = (
    f"DROP TRIGGER IF EXISTS decisions_are_immutable ON {TABLE}",
    f"DROP TRIGGER IF EXISTS decisions_are_kept ON {TABLE}",
    "DROP FUNCTION IF EXISTS approvals_decisions_are_immutable()",
)
# SQLite has no TRUNCATE: a DELETE without a condition fires the trigger too, where there is one.
# `INSERT OR REPLACE` deletes in silence, so a number that is taken is refused as well.
SQLITE_PROTECT = (
    f"""
    CREATE TRIGGER decisions_are_immutable BEFORE UPDATE ON {TABLE}
    BEGIN SELECT RAISE(ABORT, 'decisions are immutable: UPDATE refused'); END
    """,
    f"""
    CREATE TRIGGER decisions_are_kept BEFORE DELETE ON {TABLE}
    BEGIN SELECT RAISE(ABORT, 'decisions are immutable: DELETE refused'); END
    """,
    f"""
    CREATE TRIGGER decisions_are_not_replaced BEFORE INSERT ON {TABLE}
    WHEN EXISTS (
        SELECT 1 FROM {TABLE} WHERE id = NEW.id OR number = NEW.number OR hash = NEW.hash
    )
    BEGIN SELECT RAISE(ABORT, 'decisions are immutable: REPLACE refused'); END
    """,
)
SQLITE_UNPROTECT = (
    "DROP TRIGGER IF EXISTS decisions_are_immutable",
    "DROP TRIGGER IF EXISTS decisions_are_kept",
    "DROP TRIGGER IF EXISTS decisions_are_not_replaced",
)


def protect(database: Any) -> None:
    """Make the database refuse UPDATE, DELETE and TRUNCATE of decisions."""
    _run(database, POSTGRES_PROTECT, SQLITE_PROTECT)


def unprotect(database: Any) -> None:
    """Take the protection away: for a migration backwards, and for emptying a test database."""
    _run(database, POSTGRES_UNPROTECT, SQLITE_UNPROTECT)


NAMES = {
    "postgresql": (
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND tgenabled <> 'D'",
        {"decisions_are_immutable", "decisions_are_kept"},
    ),
    "sqlite": (
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s",
        {"decisions_are_immutable", "decisions_are_kept", "decisions_are_not_replaced"},
    ),
}


def missing_guards(database: Any) -> list[str]:
    """Return the triggers that should be there and are not, or are switched off."""
    if database.vendor not in NAMES:
        return []
    query, wanted = NAMES[database.vendor]
    with database.cursor() as cursor:
        cursor.execute(query, [TABLE])
        found = {row[0] for row in cursor.fetchall()}
    return sorted(wanted - found)


@contextmanager
def unprotected() -> Iterator[None]:
    """Take the protection away for the block: how a test database is emptied between tests."""
    unprotect(connection)
    try:
        yield
    finally:
        protect(connection)


def _run(database: Any, postgres: tuple[str, ...], sqlite: tuple[str, ...]) -> None:
    statements = {"postgresql": postgres, "sqlite": sqlite}.get(database.vendor, ())
    with database.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
