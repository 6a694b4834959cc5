"""JSON columns whose rows can be loaded even when the text in them is no JSON."""

from __future__ import annotations

from typing import Any

from django.db import models


class Unreadable(str):
    """What stands in place of a stored value that cannot be read back: its text, cut."""


class StoredJSON(models.JSONField):
    """A `JSONField` that gives `Unreadable` for what is no JSON (any more), or nested too deep.

    One spoiled row then is a fact to be judged, not an exception for whoever lists the table.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return Unreadable(str(value)[:200])

    def deconstruct(self) -> Any:
        """Look like the field it is to migrations: the column is the same."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs
