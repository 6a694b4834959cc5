"""A conversation of ours as messages of pydantic-ai: only at the edge, never stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from agentruntime.graph.messages import Message, ToolCall
from agentruntime.llm.arguments import arguments_to_send

FIELDS = "fields"


@dataclass(frozen=True)
class Origin:
    """Who is asked: what another provider added to its answers is not sent to this one.

    `provider` is the configured name, `kind` its protocol, `system` what pydantic-ai calls it;
    `fields`: whether unknown fields go back.
    """

    provider: str
    kind: str
    system: str
    fields: bool = True

    def made(self, message: Message) -> bool:
        return (message.extra.get("provider"), message.extra.get("kind")) == (
            self.provider,
            self.kind,
        )


def library_messages(messages: Sequence[Message], origin: Origin) -> list[ModelMessage]:
    """Return sendable messages (see `payload`) as pydantic-ai's, with what `origin` added."""
    found: list[ModelMessage] = []
    request: list[ModelRequestPart] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role != "assistant":
            request.append(_request_part(message, names))
            continue
        if request:
            found.append(ModelRequest(parts=request))
            request = []
        names.update((call.id, call.name) for call in message.tool_calls)
        found.append(_response(message, origin))
    if request:
        found.append(ModelRequest(parts=request))
    return found


def _request_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    if message.role == "tool":
        ident = message.tool_call_id
        return ToolReturnPart(names.get(ident, ""), message.content, ident)
    if message.role == "system":
        return SystemPromptPart(message.content)
    return UserPromptPart(message.content)


def _response(message: Message, origin: Origin) -> ModelResponse:
    own = origin.made(message)
    fields = message.extra.get(FIELDS) if own and origin.fields else None
    return ModelResponse(
        parts=list(_parts(message, origin, own)),
        provider_name=origin.system if own else None,
        provider_details={FIELDS: json.loads(fields)} if fields else None,
    )


def _parts(message: Message, origin: Origin, own: bool) -> Iterator[ModelResponsePart]:
    calls = [_call_part(call, origin, own) for call in message.tool_calls]
    layout = _layout(message) if own else None
    if layout is None:
        if message.content.strip():
            yield TextPart(message.content)
        yield from calls
        return
    for one in layout:
        marks: dict[str, Any] = {"id": one.get("id"), "provider_details": one.get("details")}
        if any(marks.values()):
            marks["provider_name"] = origin.system
        if one["kind"] == "call":
            yield _marked(calls[one["index"]], marks)
        elif one["kind"] == "text":
            text = message.content[one["start"] : one["start"] + one["length"]]
            if text.strip():
                yield TextPart(text, **marks)
        else:
            signature = one.get("signature")
            marks["provider_name"] = origin.system
            yield ThinkingPart(one["content"], signature=signature, **marks)


def _marked(call: ToolCallPart, marks: dict[str, Any]) -> ToolCallPart:
    if "provider_name" not in marks:
        return call
    details = {**(marks["provider_details"] or {}), **(call.provider_details or {})}
    return replace(call, **{**marks, "provider_details": details or None})


def _layout(message: Message) -> list[dict[str, Any]] | None:
    """Return the order of an answer's parts, unless the message has been changed since."""
    stored = message.extra.get("parts")
    if not isinstance(stored, str):
        return None
    layout: list[dict[str, Any]] = json.loads(stored)
    calls = sorted(one["index"] for one in layout if one["kind"] == "call")
    ends = [one["start"] + one["length"] for one in layout if one["kind"] == "text"]
    whole = calls == list(range(len(message.tool_calls)))
    return layout if whole and max(ends, default=0) == len(message.content) else None


def _call_part(call: ToolCall, origin: Origin, own: bool) -> ToolCallPart:
    fields = call.extra.get(FIELDS) if own and origin.fields else None
    return ToolCallPart(
        call.name,
        arguments_to_send(call.arguments, str(call.extra.get("text", ""))),
        call.id,
        provider_name=origin.system if fields else None,
        provider_details={FIELDS: json.loads(fields)} if fields else None,
    )


def request_parameters(tools: Sequence[Any]) -> ModelRequestParameters:
    """Return the tools as the library offers them. A tool has `name`, `description`, `schema`."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=made.name,
                description=made.description,
                parameters_json_schema=made.schema,
                strict=False,
            )
            for made in tools
        ]
    )
