"""JSON columns whose rows can be loaded even when the text in them is no JSON."""

from __future__ import annotations

import json
from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTransform


class Unreadable(str):
    """What stands in place of a stored value that cannot be read back: its text, cut."""


EMPTY: dict[str, type[Any]] = {"[]": list, "{}": dict}


class StoredJSON(models.JSONField):
    """A `JSONField` that gives `Unreadable` for what is no JSON (any more), or nested too deep.

    Django's own gives the raw text for the first, which looks like a value, and raises for the
    second, so that one spoiled row stops whoever lists the table.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value is None or isinstance(expression, KeyTransform):
            return super().from_db_value(value, expression, connection)
        if value in EMPTY:  # as most of the columns of most messages are
            return EMPTY[value]()
        try:
            return json.loads(value, cls=self.decoder)
        except (ValueError, TypeError, RecursionError):
            return Unreadable(str(value)[:200])

    def deconstruct(self) -> Any:
        """Look like the field it is to migrations: the column is the same."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs
