"""Asking a real model: the settings that the adapters need, and where the text goes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from agentruntime import llm
from agentruntime.conf import read_fields, runtime_settings
from agentruntime.event_loops import at_end
from agentruntime.graph.messages import Message
from agentruntime.signals import counted

at_end(llm.close_clients)


async def ask_model(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[Any],
    *,
    on_delta: Callable[[str], None],
    on_retry: Callable[[], None] = lambda: None,
    deadline: float | None,
) -> Message:
    """Return the answer of the model named `provider:name`; see `agentruntime.llm`.

    `on_retry` is called when the text that was told so far is void.
    """

    def count_retry(retry: llm.Retry) -> None:
        counted.send(
            sender=None,
            name="model.retries",
            value=1,
            attributes={"model": retry.model, "code": retry.code},
        )
        on_retry()

    return await llm.complete(
        model,
        messages,
        tools,
        options=model_options(),
        on_delta=on_delta,
        on_retry=count_retry,
        deadline=deadline,
    )


def model_options() -> llm.ModelOptions:
    """Return what the settings say: the usual providers by their keys, and the host's own.

    Raises `ImproperlyConfigured`.
    """
    settings = runtime_settings()
    usual = llm.usual_providers(
        openai_api_key=settings.OPENAI_API_KEY,
        openai_base_url=settings.OPENAI_BASE_URL,
        anthropic_api_key=settings.ANTHROPIC_API_KEY,
    )
    hosts = {
        name: read_fields(f"AGENTRUNTIME['MODEL_PROVIDERS'][{name!r}]", given, llm.Provider)
        for name, given in settings.MODEL_PROVIDERS.items()
    }
    options = read_fields(
        "AGENTRUNTIME['MODEL_OPTIONS']",
        settings.MODEL_OPTIONS,
        llm.ModelOptions,
        without=["providers"],
    )
    try:
        return replace(options, providers={**usual, **hosts})
    except ValueError as error:
        raise ImproperlyConfigured(f"AGENTRUNTIME['MODEL_PROVIDERS']: {error}") from None
