"""Asking a real model: the settings that the adapters need, and where the text goes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentruntime import llm
from agentruntime.conf import runtime_settings
from agentruntime.graph.messages import Message


async def ask_model(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[Any],
    *,
    on_delta: Callable[[str], None],
    deadline: float | None,
) -> Message:
    """Return the answer of the model named `provider:name`; see `agentruntime.llm`."""
    settings = runtime_settings()
    options = llm.ModelOptions(
        openai_api_key=settings.OPENAI_API_KEY,
        openai_base_url=settings.OPENAI_BASE_URL,
        anthropic_api_key=settings.ANTHROPIC_API_KEY,
    )
    return await llm.complete(
        model, messages, tools, options=options, on_delta=on_delta, deadline=deadline
    )
