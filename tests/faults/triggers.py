"""Errors of the database at a chosen table: triggers that raise."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def refusing(table: str, when: str, event: str = "UPDATE") -> Iterator[None]:
    """Let every `event` on `table` fail for which the SQL condition `when` (of NEW) holds."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$"
            )
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW WHEN ({when}) "
                "EXECUTE FUNCTION refuse()"
            )
        else:
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW WHEN {when} "
                "BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
            )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            on = f" ON {table}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER refuse{on}")


@contextmanager
def failing(
    table: str, sqlstate: str, times: int, event: str = "INSERT OR UPDATE"
) -> Iterator[None]:
    """Let the first statements on `table` fail with an SQLSTATE, `times` of them (PostgreSQL).

    A sequence counts, for a rolled back transaction does not count in a table.
    """
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE failures")
        cursor.execute(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('failures') <= {times} THEN "
            f"RAISE EXCEPTION 'injected' USING ERRCODE = '{sqlstate}'; END IF; RETURN NULL; END $$"
        )
        cursor.execute(
            f"CREATE TRIGGER fail AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION fail()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER fail ON {table}")
            cursor.execute("DROP SEQUENCE failures")
