"""An index for a column that grows as the table does."""

from __future__ import annotations

from typing import Any

from django.db import models

PAGES_PER_RANGE = 16
"""The newest range has no summary that each row would move: the smaller it is, the sooner."""


class BlockRange(models.Index):
    """Finds the rows of a span of time in a table that is only appended to, and costs a write next
    to nothing: BRIN on PostgreSQL, elsewhere an ordinary index.
    """

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **options: Any) -> Any:
        is_postgres = schema_editor.connection.vendor == "postgresql"
        if is_postgres:
            using = " USING brin"
        statement = super().create_sql(model, schema_editor, using=using, **options)
        if is_postgres:
            statement.parts["extra"] = f" WITH (pages_per_range = {PAGES_PER_RANGE})"
        return statement
