"""Rows of models read from statements that no queryset has built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model

M = TypeVar("M", bound=Model)


def columns_of(model: type[Model], name: str) -> str:
    """Return the columns of a model, in the order in which `read_row` wants them, as those of the
    table or subquery `name`.
    """
    return ", ".join(f"{name}.{field.column}" for field in model._meta.concrete_fields)


def read_row(model: type[M], values: Iterator[Any]) -> M:
    """Return a row of a model from the next values, one for each of its columns."""
    fields = model._meta.concrete_fields
    read = [
        convert(next(values), None, connection)
        if (convert := getattr(field, "from_db_value", None))
        else next(values)
        for field in fields
    ]
    return model.from_db(connection.alias, [field.attname for field in fields], read)
