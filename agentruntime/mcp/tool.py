"""A tool of an MCP server as the runtime sees it: a schema of the server's, and a request."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentruntime.exceptions import InvalidArguments
from agentruntime.graph.json_values import NotJson, check_json, digest
from agentruntime.graph.tools import Tool, object_from
from agentruntime.schemas import check_schema

CHANGED = "its server describes it otherwise than when it was let in"


@dataclass(frozen=True)
class RemoteTool(Tool):
    """`input_schema` is what the server says, `digest` that of all it says about the tool."""

    input_schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    digest: str = ""

    @property
    def is_async(self) -> bool:
        return True

    @cached_property
    def injected(self) -> frozenset[str]:
        return frozenset()

    @property
    def parameter_names(self) -> Set[str]:
        return self.input_schema.get("properties", {}).keys()

    @cached_property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {}, **self.input_schema}

    @cached_property
    def fingerprint(self) -> str:
        return digest({"name": self.name, "listing": self.digest})

    def read_arguments(self, raw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            found = object_from(raw)
            check_json(found)
        except NotJson as error:
            raise InvalidArguments(tool=self.name, reason=str(error)[:300]) from None
        return self.load_arguments(found), found

    def load_arguments(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        try:
            check_schema(dict(stored), self.schema)
        except NotJson as error:
            raise InvalidArguments(tool=self.name, reason=str(error)[:300]) from None
        return dict(stored)


def content_of(answer: Any) -> Any:
    """Return what a server answered: its structured content, else its text; the rest is named."""
    if answer.structured_content is not None:
        return answer.structured_content
    return text_of(answer)


def text_of(answer: Any) -> str:
    """Return the text of an answer; what is no text is named, with its kind and its size."""
    return "\n".join(map(_words, answer.content))


def _words(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    inner = getattr(part, "resource", None)
    if inner is not None and getattr(inner, "text", None) is not None:
        return str(inner.text)
    size = len(getattr(part, "data", "") or getattr(inner, "blob", "") or "")
    return f"[{part.type} left out: {getattr(part, 'mime_type', None) or 'unknown'}, {size:,}]"
