"""The node that runs tools, and where it gets those from that are known only later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from agentruntime.exceptions import InvalidTool
from agentruntime.graph.tools import Tool, as_tool


@runtime_checkable
class ToolSource(Protocol):
    """Where a node gets tools from that are not known when the graph is written."""

    def tools(self) -> list[Tool]:
        """Return the tools as they are known in this process. Cheap, from any thread."""

    def load(self) -> None:
        """Find out what tools there are. Called by a worker that has claimed a run."""


class ToolNode:
    """The node that runs the calls of the last assistant message, each by itself.

    `tools` are functions, tools, and sources of tools that are known only later.
    """

    def __init__(self, tools: Iterable[Any]) -> None:
        self.sources: list[ToolSource] = []
        self.own: dict[str, Tool] = {}
        """The tools that need no source."""
        for one in tools:
            if isinstance(one, ToolSource):
                self.sources.append(one)
                continue
            made = as_tool(one)
            if made.name in self.own:
                raise InvalidTool(tool=made.name, problem="two tools of one node have this name")
            self.own[made.name] = made

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name, as far as they are known now; of two with one name the first."""
        if not self.sources:
            return self.own
        found = dict(self.own)
        for source in self.sources:
            for made in source.tools():
                found.setdefault(made.name, made)
        return found
