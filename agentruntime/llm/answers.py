"""An answer of pydantic-ai as a message of ours, with what the provider added kept as JSON text.

JSON text, because a store may reorder keys and refuses some characters; text comes back unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_core import to_jsonable_python

from agentruntime.exceptions import ModelUnavailable
from agentruntime.graph.json_values import NotJson, check_text
from agentruntime.graph.messages import Message, ToolCall
from agentruntime.llm.arguments import read_call_arguments
from agentruntime.llm.options import ModelName
from agentruntime.llm.prices import usage_record
from agentruntime.llm.prompts import FIELDS

# Between texts that something else separates. `on_delta` is told it as well.
GAP = "\n\n"
# Reasons to stop after which the end of the answer is missing, in the words of whoever gave them.
CUT = {
    "length", "max_tokens", "model_length", "model_context_window_exceeded",
    "content_filter", "refusal", "safety", "sensitive",
}  # fmt: skip
FAULTS = {"error", "network_error", "insufficient_system_resource"}
MAX_IDENT = 100
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass
class Layout:
    """The text of an answer, its calls, and the order in which its parts stood."""

    text: str = ""
    calls: list[ToolCallPart] = field(default_factory=list)
    order: list[dict[str, Any]] = field(default_factory=list)

    def add(self, part: ModelResponsePart) -> None:
        if isinstance(part, TextPart) and part.content:
            self._add_text(part)
        elif isinstance(part, ToolCallPart):
            self.order.append({"kind": "call", "index": len(self.calls), **_marks(part)})
            self.calls.append(part)
        elif isinstance(part, ThinkingPart):
            signature = {} if part.signature is None else {"signature": part.signature}
            thought = {"kind": "thinking", "content": part.content}
            self.order.append({**thought, **signature, **_marks(part)})

    def _add_text(self, part: TextPart) -> None:
        if self.text and self.order[-1]["kind"] != "text":
            self.text += GAP
        place = {"start": len(self.text), "length": len(part.content)}
        self.order.append({"kind": "text", **place, **_marks(part)})
        self.text += part.content

    @property
    def is_plain(self) -> bool:
        """Whether the order says no more than: one text or none, then the calls."""
        kinds = [one["kind"] for one in self.order]
        marked = any("id" in one or "details" in one for one in self.order)
        return not marked and kinds[kinds[:1] == ["text"] :] == ["call"] * len(self.calls)


def _marks(part: TextPart | ThinkingPart | ToolCallPart) -> dict[str, Any]:
    """What a provider wants back with a part: its id there, and data of the provider's own."""
    details = {key: one for key, one in (part.provider_details or {}).items() if key != FIELDS}
    found = {"id": part.id, "details": to_jsonable_python(details) or None}
    return {key: value for key, value in found.items() if value is not None}


def to_message(
    response: ModelResponse,
    model: ModelName,
    kind: str,
    *,
    max_tokens: int | None = None,
    attempts: int = 1,
) -> Message:
    """Return the answer as an assistant message.

    `extra` says: `provider`, `kind` and `model` (who was asked), `answered_by` and `response_id`
    (what the provider said), `finish`, `usage` (tokens and cost), `attempts`; `at_limit` where the
    output reached `max_tokens`, `refusal`, `empty`, `cleaned`; `fields` and `parts` hold the
    provider's own data. A call of an answer whose end is missing, or that used all its tokens, has
    `extra["cut"]`: it must not run, whatever its arguments look like.
    Raises `ModelUnavailable` where the provider gave up on the answer itself.
    """
    details = response.provider_details or {}
    finish = _finish(response, details)
    if finish in FAULTS:
        reason = f"it stopped with {finish!r}"
        raise ModelUnavailable(model=str(model), attempts=attempts, reason=reason)
    layout = Layout()
    for part in response.parts:
        layout.add(part)
    refusal = str(details.get("refusal") or "")
    limit_reached = max_tokens is not None and response.usage.output_tokens >= max_tokens
    text, cleaned = _storable(layout.text or refusal)
    cut = finish in CUT or limit_reached
    extra: dict[str, Any] = {
        "provider": model.provider,
        "kind": kind,
        "model": str(model),
        "answered_by": _storable(response.model_name or "")[0],
        "response_id": _storable(response.provider_response_id or "")[0],
        "finish": finish,
        "usage": usage_record(response),
        "attempts": attempts,
    }
    flags = {
        "at_limit": limit_reached or finish in ("length", "max_tokens"),
        "refusal": bool(refusal),
        "cleaned": cleaned,
        "empty": not text.strip() and not layout.calls,
    }
    extra |= {name: True for name, holds in flags.items() if holds}
    if details.get(FIELDS):
        extra[FIELDS] = json.dumps(details[FIELDS])
    if not layout.is_plain and not cleaned:
        extra["parts"] = json.dumps(layout.order)
    calls = [_call(part, cut) for part in layout.calls]
    return Message.assistant(text, tool_calls=calls, extra=extra)


def _finish(response: ModelResponse, details: dict[str, Any]) -> str:
    reason = response.finish_reason or details.get("finish_reason") or ""
    return _storable(str(reason))[0][:100]


def _call(part: ToolCallPart, cut: bool) -> ToolCall:
    arguments, text = read_call_arguments(part.args)
    extra: dict[str, Any] = {}
    if text:
        extra["text"] = text
    if fields := (part.provider_details or {}).get(FIELDS):
        extra[FIELDS] = json.dumps(fields)
    if cut:
        extra["cut"] = True
    return ToolCall(
        id=_ident(_text(part.tool_call_id)),
        name=_storable(_text(part.tool_name))[0],
        arguments=arguments,
        extra=extra,
    )


def _text(value: object) -> str:
    # The SDKs read loosely: what a server sent in place of a text is still no text.
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _ident(ident: str) -> str:
    """Return an id short enough to be part of a key; what is longer by its digest."""
    ident = _storable(ident)[0]
    return ident if len(ident) <= MAX_IDENT else hashlib.sha256(ident.encode()).hexdigest()


def _storable(text: str) -> tuple[str, bool]:
    """Return `text` without what no store takes (NUL, lone surrogates), and whether it had any."""
    try:
        check_text(text)
    except NotJson:
        return UNSTORABLE.sub("�", text), True
    return text, False
