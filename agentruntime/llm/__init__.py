"""Models: neutral messages in, the next message out, whoever the provider is.

`complete` is the one door. It knows messages and tools; nothing of Django, runs or settings. The
libraries behind it are loaded when a model is first asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agentruntime.graph.messages import Message
from agentruntime.llm.chain import ModelChain
from agentruntime.llm.network import real_requests_refused, refuse_real_requests
from agentruntime.llm.options import ModelOptions, Provider, read_model_names, usual_providers
from agentruntime.llm.port import ModelClient, OnDelta, OnRetry, Retry
from agentruntime.llm.prices import cost, price

__all__ = [
    "ModelClient",
    "ModelOptions",
    "OnDelta",
    "OnRetry",
    "Provider",
    "Retry",
    "client_for",
    "close_clients",
    "complete",
    "cost",
    "count",
    "price",
    "real_requests_refused",
    "refuse_real_requests",
    "usual_providers",
]


def client_for(model: str, options: ModelOptions) -> ModelClient:
    """Return the client for `model`: `provider:name`, or a chain with commas between.

    It is cheap to make and holds no connection: those are kept per event loop and shared.
    Raises `InvalidModel` for a name that cannot be read, an unknown provider or a missing key.
    """
    names = read_model_names(model)
    for name in names:
        options.provider(name)
    return ModelChain(names, options)


async def complete(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[Any] = (),
    *,
    options: ModelOptions,
    on_delta: OnDelta | None = None,
    on_retry: OnRetry | None = None,
    deadline: float | None = None,
) -> Message:
    """Return the next message of the conversation: an assistant message with a fresh id.

    `tools` have `name`, `description` and `schema`; `deadline` is a moment of `time.monotonic()`.
    With `on_delta` the text is told while it is written; `on_retry` is told when what was told is
    void and the model is asked again. A call with `extra["cut"]` must not be run: the answer ended
    before the call did. Raises `ModelError`, whose `code` is stable and whose text holds no secret.
    """
    return await client_for(model, options).complete(
        messages, tools, on_delta=on_delta, on_retry=on_retry, deadline=deadline
    )


async def count(
    model: str, messages: Sequence[Message], tools: Sequence[Any] = (), *, options: ModelOptions
) -> int:
    """Return how many tokens the conversation takes; an estimate where the provider counts none."""
    return await client_for(model, options).count(messages, tools)


async def close_clients() -> None:
    """Close the connections of the running event loop; call it before that loop is stopped."""
    if (connections := sys.modules.get("agentruntime.llm.connections")) is not None:
        await connections.close()
