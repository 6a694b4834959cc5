"""Checking values against JSON Schemas: answers of people and clients, arguments of MCP tools."""

from __future__ import annotations

from typing import Any

from agentruntime.graph.json_values import NotJson


def check_schema(value: Any, schema: Any) -> None:
    """Raise `NotJson` if the value does not fit the schema, or the schema is none."""
    import jsonschema  # loaded when first needed: most processes never check an answer

    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        raise NotJson(error.json_path, error.message[:300]) from None
    except (jsonschema.SchemaError, RecursionError, LookupError) as error:
        raise NotJson("$", f"its schema cannot be used ({type(error).__name__})") from None
