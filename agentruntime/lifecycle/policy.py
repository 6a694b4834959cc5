"""What the host says about tools in its settings, laid over what the code says."""

from __future__ import annotations

from functools import cache

from django.core.signals import setting_changed

from agentruntime.conf import runtime_settings
from agentruntime.graph.tools import Tool, as_tool


@cache
def with_policy(tool: Tool) -> Tool:
    """Return the tool with the options of `AGENTRUNTIME["TOOLS"]` for its name."""
    options = dict(runtime_settings().TOOLS.get(tool.name, {}))
    return as_tool(tool, **options) if options else tool


def _forget(*, setting: str, **_: object) -> None:
    if setting == "AGENTRUNTIME":
        with_policy.cache_clear()


setting_changed.connect(_forget, dispatch_uid="agentruntime.policy")
