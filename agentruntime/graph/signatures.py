"""What a plain function says of itself: its parameters as a schema, its docstring in parts."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model

from agentruntime.exceptions import InvalidTool

INJECTED = ("state", "ctx", "tool_call_id", "idempotency_key")
PLAIN = (str, int, float, bool, "str", "int", "float", "bool")


def injected_parameters(fn: Callable[..., Any]) -> frozenset[str]:
    """Return which parameters the runtime gives: by name, unless a plain type says otherwise.

    `state: str` is an argument like any other (a part of an address, say).
    """
    hints = getattr(fn, "__annotations__", {})
    names = frozenset(inspect.signature(fn).parameters) & frozenset(INJECTED)
    return names - {name for name in ("state", "ctx") if hints.get(name) in PLAIN}


def parameters_model(fn: Callable[..., Any], name: str) -> type[BaseModel]:
    """Return the parameters that a model gives as a pydantic model that refuses unknown ones.

    Raises `InvalidTool` for one that has no schema.
    """
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise InvalidTool(tool=name, problem=f"its annotations cannot be read: {error}") from None
    told, given = parameter_descriptions(fn), injected_parameters(fn)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.name in given:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTool(tool=name, problem=f"*{parameter.name} has no schema")
        if parameter.name.startswith("model_") and hasattr(BaseModel, parameter.name):
            raise InvalidTool(tool=name, problem=f"no parameter can be called {parameter.name}")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (
            hints.get(parameter.name, Any),
            Field(default, description=told.get(parameter.name)),
        )
    try:
        made = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        made.model_json_schema()
    except (PydanticUserError, NameError) as error:
        raise InvalidTool(tool=name, problem=str(error).splitlines()[0]) from None
    return made


def summary_of(fn: Any) -> str:
    """Return what a docstring says of the function, without its parameters."""
    text = inspect.cleandoc(fn.__doc__ or "")
    return re.split(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises):|\n\s*:param ", text)[
        0
    ].strip()


def parameter_descriptions(fn: Any) -> dict[str, str]:
    """Return what a docstring says of each parameter (Google or Sphinx style), by name."""
    text = inspect.cleandoc(fn.__doc__ or "")
    found = dict(re.findall(r":param (?:\w+ )?(\w+):\s*(.+)", text))
    section = re.search(r"(?:^|\n)(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)+)", text)
    if section:
        for name, line in re.findall(
            r"^[ \t]+(\w+)(?: \([^)]*\))?:\s*(.+)$", section[1], re.MULTILINE
        ):
            found[name] = line.strip()
    return found
