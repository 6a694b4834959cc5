"""OpenAI's Responses API. Each request brings the whole conversation: nothing is kept there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from agentruntime.llm.openai_chat import make_client
from agentruntime.llm.options import ModelName, Provider

PLAIN_IDS = True
USER_FIRST = False


def make_model(
    name: ModelName, provider: Provider, http: httpx2.AsyncClient
) -> OpenAIResponsesModel:
    """Return the library's model for `name`; it asks through `http` and retries nothing itself."""
    return OpenAIResponsesModel(
        name.name,
        provider=OpenAIProvider(openai_client=make_client(provider, http)),
        profile=dict(provider.profile) or None,  # type: ignore[arg-type]  # keys checked by the library
        settings=OpenAIResponsesModelSettings(openai_store=False),
    )


def profile_for(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    """Return what an earlier answer shows of the model: one that gave sealed reasoning takes it
    back. By the names of models the library knows that of OpenAI's own only.
    """
    parts = [part for one in messages if isinstance(one, ModelResponse) for part in one.parts]
    sealed = any(isinstance(part, ThinkingPart) and part.signature for part in parts)
    return {"openai_supports_encrypted_reasoning_content": True} if sealed else {}


def is_whole(response: ModelResponse, *, streamed: bool) -> bool:
    """Say whether the answer came to its end: an event or a status says so."""
    details = response.provider_details or {}
    return bool(details.get("finish_reason") or details.get("refusal"))
