"""Checking values against JSON Schemas: answers of people and clients, arguments of MCP tools."""

from __future__ import annotations

from typing import Any

from agentruntime.graph.json_values import NotJson, check_json


def check_schema(value: Any, schema: Any) -> None:
    """Raise `NotJson` if the value does not fit the schema, or the schema is none."""
    import jsonschema  # loaded when first needed: most processes never check an answer

    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        raise NotJson(error.json_path, error.message[:300]) from None
    except Exception as error:  # no schema, a reference to nowhere, a pattern that is none
        raise NotJson("$", f"its schema cannot be used ({type(error).__name__})") from None


def check_is_schema(schema: Any, path: str) -> None:
    """Raise `NotJson` unless this is a JSON Schema, of a draft that it names or of the last one."""
    from jsonschema import SchemaError, validators

    check_json(schema, path=path)
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema, format_checker=kind.FORMAT_CHECKER)
    except SchemaError as error:
        raise NotJson(path, f"no JSON Schema: {error.message[:300]}") from None
    except Exception as error:
        raise NotJson(path, f"no JSON Schema ({type(error).__name__})") from None
