"""Anthropic's messages protocol."""

from __future__ import annotations

from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from agentruntime.llm.options import ModelName, Provider

OWN_URL = "https://api.anthropic.com"
PLAIN_IDS = True
USER_FIRST = True


def make_model(name: ModelName, provider: Provider, http: httpx2.AsyncClient) -> AnthropicModel:
    """Return the library's model for `name`; it asks through `http` and retries nothing itself."""
    client = AsyncAnthropic(
        api_key=provider.api_key or "none",
        webhook_key="",
        base_url=provider.base_url or OWN_URL,
        default_headers=dict(provider.headers),
        http_client=http,
        timeout=http.timeout,
        max_retries=0,
    )
    profile: Any = dict(provider.profile) or None
    return AnthropicModel(
        name.name, provider=AnthropicProvider(anthropic_client=client), profile=profile
    )


def is_whole(response: ModelResponse, *, streamed: bool) -> bool:
    """Say whether the answer came to its end: without a reason to stop it was cut.

    The library streams long answers by itself, so this goes for those not asked to stream too.
    """
    return bool((response.provider_details or {}).get("finish_reason"))
