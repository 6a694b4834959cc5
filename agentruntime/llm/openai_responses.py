"""OpenAI's Responses API. Each request brings the whole conversation: nothing is kept there."""

from __future__ import annotations

import httpx2
from pydantic_ai.messages import ModelResponse
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


def is_whole(response: ModelResponse, *, streamed: bool) -> bool:
    """Say whether the answer came to its end: an event or a status says so."""
    return bool((response.provider_details or {}).get("finish_reason"))
