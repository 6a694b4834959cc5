"""The database's clock, in the query: the only clock that leases, deadlines and timers know."""

from __future__ import annotations

from typing import Any

from django.db.models import DateTimeField, Func


class DatabaseTime(Func):
    """The time of the database right now, `seconds` from it. Unlike `Now`, not the time at
    BEGIN.
    """

    output_field = DateTimeField()
    on_postgresql = "clock_timestamp()"

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = float(seconds)

    def as_postgresql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:
        if not self.seconds:
            return self.on_postgresql, []
        return f"({self.on_postgresql} + make_interval(secs => %s::float8))", [self.seconds]

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:
        modifier = f"{self.seconds:+.3f} seconds"
        return "(strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now', %s))", [modifier]

    def get_group_by_cols(self) -> list[Any]:
        return []


class StatementTime(DatabaseTime):
    """The time at which the statement began. It is one moment for all rows, so what is due can be
    found by an index; for conditions only.
    """

    on_postgresql = "statement_timestamp()"
