"""OpenAI's chat completions protocol, as its many servers really speak it.

On top of pydantic-ai's model: fields that no protocol names are kept and sent back, call arguments
go back as the text they came as, and calls that a server words loosely are read, not refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from openai import AsyncOpenAI, Omit
from openai.types import chat
from openai.types.chat import chat_completion_chunk
from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from agentruntime.llm.chat_fields import (
    CallDrafts,
    join_fields,
    plain_calls,
    unknown_call_fields,
    unknown_message_fields,
)
from agentruntime.llm.options import ModelName, Provider
from agentruntime.llm.prompts import FIELDS

OWN_URL = "https://api.openai.com/v1"
PLAIN_IDS = False
USER_FIRST = False


def make_client(provider: Provider, http: httpx2.AsyncClient) -> AsyncOpenAI:
    """Return the SDK's client for a provider; it asks through `http` and retries nothing itself."""
    # An Omit keeps the SDK from taking these from the environment.
    headers: dict[str, Any] = {
        "OpenAI-Organization": provider.organization or Omit(),
        "OpenAI-Project": provider.project or Omit(),
        **provider.headers,
    }
    return AsyncOpenAI(
        api_key=provider.api_key or "none",
        admin_api_key="",
        organization=provider.organization,
        project=provider.project,
        webhook_secret="",
        base_url=provider.base_url or OWN_URL,
        default_headers=headers,
        http_client=http,
        timeout=http.timeout,
        max_retries=0,
    )


def make_model(name: ModelName, provider: Provider, http: httpx2.AsyncClient) -> ChatModel:
    """Return the library's model for `name`."""
    client = make_client(provider, http)
    own = not provider.base_url or provider.base_url.rstrip("/") == OWN_URL
    return ChatModel(
        name.name,
        provider=OpenAIProvider(openai_client=client)
        if own and name.provider == "openai"
        else OpenAICompatibleProvider(name.provider, openai_client=client),
        profile=dict(provider.profile) or None,  # type: ignore[arg-type]  # keys checked by the library
    )


class ChatModel(OpenAIChatModel):
    """The library's chat model, with the gaps closed that the module's docstring names."""

    def _process_response(self, response: Any, **options: Any) -> ModelResponse:
        if isinstance(response, chat.ChatCompletion):
            data = response.model_dump(warnings=False)
            choice = _first_choice(data)
            choice["finish_reason"] = choice.get("finish_reason") or None
            message = choice["message"] if isinstance(choice.get("message"), dict) else {}
            fields = unknown_message_fields(message, self.thinking_field)
            calls = [unknown_call_fields(call) for call in message.get("tool_calls") or ()]
            message["tool_calls"] = plain_calls(message.get("tool_calls"))
            response = chat.ChatCompletion.construct(**data)
        else:
            fields, calls = {}, []
        answer = super()._process_response(response, **options)
        if fields:
            answer.provider_details = {**(answer.provider_details or {}), FIELDS: fields}
        parts = (part for part in answer.parts if isinstance(part, ToolCallPart))
        for part, unknown in zip(parts, calls, strict=False):
            if unknown:
                part.provider_name, part.provider_details = self.system, {FIELDS: unknown}
        return answer

    @property
    def thinking_field(self) -> str | None:
        return self.profile.get("openai_chat_thinking_field", None)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return ChatStream

    @dataclass
    class _MapModelResponseContext(OpenAIChatModel._MapModelResponseContext):
        """Writes one assistant message of a request."""

        def _map_response_tool_call_part(self, item: ToolCallPart) -> None:
            fields = (item.provider_details or {}).get(FIELDS, {})
            function = {"name": item.tool_name, "arguments": item.args}
            call: dict[str, Any] = {
                **fields.get("call", {}),
                "id": item.tool_call_id,
                "type": "function",
                "function": {**fields.get("function", {}), **function},
            }
            self.tool_calls.append(call)  # type: ignore[arg-type]  # a TypedDict with unknown keys

        def _into_message_param(self) -> chat.ChatCompletionAssistantMessageParam | None:
            written = super()._into_message_param()
            fields = ((self.message and self.message.provider_details) or {}).get(FIELDS)
            if written is None or not fields:
                return written
            return {**fields, **written}


def _first_choice(data: dict[str, Any]) -> dict[str, Any]:
    """Return the first choice, to be changed in place; an empty one where there is none."""
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


@dataclass
class ChatStream(OpenAIStreamedResponse):
    """The library's reading of a stream, with calls put together by `CallDrafts`."""

    _drafts: CallDrafts = field(default_factory=CallDrafts, init=False)
    _fields: dict[str, Any] = field(default_factory=dict, init=False)

    def _map_part_delta(
        self, choice: chat_completion_chunk.Choice
    ) -> Iterable[ModelResponseStreamEvent]:
        thinking = self._model_profile.get("openai_chat_thinking_field", None)
        unknown = unknown_message_fields(choice.delta.model_extra or {}, thinking)
        if unknown:
            join_fields(self._fields, unknown)
            self.provider_details = {**(self.provider_details or {}), FIELDS: self._fields}
            for name in unknown:
                (choice.delta.model_extra or {}).pop(name, None)
        return super()._map_part_delta(choice)

    def _map_tool_call_delta(
        self, choice: chat_completion_chunk.Choice
    ) -> Iterable[ModelResponseStreamEvent]:
        calls: Any = choice.delta.tool_calls
        for delta in calls if isinstance(calls, list) else ():
            if not isinstance(delta, chat_completion_chunk.ChoiceDeltaToolCall):
                continue
            draft, piece = self._drafts.add(delta)
            details: Mapping[str, Any] | None = {FIELDS: draft.fields} if draft.fields else None
            yield from self._parts_manager.handle_tool_call_delta_events(
                vendor_part_id=("call", draft.position),
                tool_name=piece.name,
                args=piece.arguments,
                tool_call_id=delta.id or None,
                provider_name=self.provider_name if details else None,
                provider_details=dict(details) if details else None,
            )


def is_whole(response: ModelResponse, *, streamed: bool) -> bool:
    """Say whether the answer came to its end: a stream without a reason to stop was cut.

    A response that is not streamed is whole if it can be read; some servers name no reason then.
    """
    if not streamed:
        return True
    details = response.provider_details or {}
    return bool(details.get("finish_reason") or details.get("refusal"))
