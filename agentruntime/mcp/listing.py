"""What a server says about its tools, as it is stored: checked, bounded, each name once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.schemas import check_form
from agentruntime.signals import noticed

MAX_TOOLS = 200
MAX_LISTING_BYTES = 65_536
OTHER = re.compile(r"[^A-Za-z0-9_-]")


def read_listing(server: str, offered: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the tools of a server as {"name", "description", "schema"}, those left out that cannot
    be offered: what is told twice, or told badly. Operators are told which, and why.
    """
    found = [
        {"name": one.name, "description": one.description or "", "schema": dict(one.input_schema)}
        for one in offered
    ]
    counts = Counter(full_name(server, one["name"]) for one in found)
    kept = []
    for one in found:
        problem = _problem(one, counts[full_name(server, one["name"])], len(kept))
        if problem:
            facts = {"server": server, "tool": str(one["name"])[:200], "problem": problem}
            noticed.send(sender=None, level="warning", event="mcp tool left out", facts=facts)
        else:
            kept.append(one)
    return kept


def full_name(server: str, name: str) -> str:
    """Return the name by which a model calls a tool: `server__tool`, in the characters allowed."""
    return f"{server}__{OTHER.sub('_', name)}"


def _problem(one: dict[str, Any], times: int, so_far: int) -> str:
    if times > 1:
        return "its name stands for several tools"
    if not one["name"] or len(one["name"]) > 100:
        return "its name has not 1 to 100 characters"
    if so_far >= MAX_TOOLS:
        return f"the server offers more than {MAX_TOOLS} tools"
    if one["schema"].get("type", "object") != "object":
        return "its schema is not one of an object"
    try:
        check_json(one, path="tool", max_bytes=MAX_LISTING_BYTES)
        check_form(one["schema"], "tool.schema")  # providers refuse a request that has another one
    except NotJson as error:
        return str(error)
    return ""
