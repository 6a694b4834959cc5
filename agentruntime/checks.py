"""What `manage.py check` says of a configuration that would break a promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import InvalidTool
from agentruntime.graph.definition import StateGraph
from agentruntime.graph.registry import get_graph, graph_names
from agentruntime.graph.tools import Tool
from agentruntime.lifecycle.model_call import model_options
from agentruntime.lifecycle.policy import with_policy


@register("agentruntime")
def times_nest(**_: Any) -> list[Any]:
    """Leases must outlive several beats, or every stall of the database costs a recovery."""
    found: list[Any] = []
    conf = runtime_settings()
    if conf.LEASE_SECONDS < 2 * conf.BEAT_SECONDS:
        found.append(
            Error(
                "AGENTRUNTIME: LEASE_SECONDS is less than twice BEAT_SECONDS: "
                "one late beat loses the run.",
                id="agentruntime.E001",
            )
        )
    return found


@register("agentruntime")
def cache_is_json(**_: Any) -> list[Any]:
    """A pickle in the cache is code that whoever can write to Redis runs here."""
    cache = getattr(settings, "CACHES", {}).get(runtime_settings().CACHE_ALIAS, {})
    backend = cache.get("BACKEND", "")
    serializer = cache.get("OPTIONS", {}).get("SERIALIZER", "")
    if "redis" in backend.lower() and "json" not in serializer.lower():
        return [
            Warning(
                f"The cache {runtime_settings().CACHE_ALIAS!r} does not use a JSON serializer.",
                id="agentruntime.W001",
            )
        ]
    return []


@register("agentruntime")
def providers_fit(**_: Any) -> list[Any]:
    """What the host says of models must be possible, or the first call of one fails its run."""
    try:
        model_options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="agentruntime.E003")]
    return []


@register("agentruntime")
def policies_fit(**_: Any) -> list[Any]:
    """What the host says of a tool must be possible, or the first call of it fails its run."""
    found = {}
    for tool in _tools(*(get_graph(name) for name in graph_names())):
        try:
            with_policy(tool)
        except InvalidTool as error:
            found[tool.name] = Error(f"AGENTRUNTIME['TOOLS']: {error}", id="agentruntime.E002")
    return list(found.values())


def _tools(*graphs: StateGraph) -> Iterator[Tool]:
    """The tools of graphs that are known without asking anybody, those of inner agents too."""
    for graph in graphs:
        for node in graph.tool_nodes().values():
            for tool in node.own.values():
                yield tool
                if isinstance(tool.agent, StateGraph):
                    yield from _tools(tool.agent)
