"""One request to one model: neutral messages in, one neutral message out, or an error of ours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from agentruntime.exceptions import ModelError, ModelUnreachable
from agentruntime.graph.messages import Message
from agentruntime.llm.answers import GAP, to_message
from agentruntime.llm.connections import model_for, protocol_of
from agentruntime.llm.errors import retry_after, to_model_error
from agentruntime.llm.network import check_request
from agentruntime.llm.options import ModelName, ModelOptions, Provider
from agentruntime.llm.payload import sendable
from agentruntime.llm.port import OnDelta
from agentruntime.llm.prompts import Origin, library_messages, request_parameters

logger = logging.getLogger(__name__)

CUT_SHORT = "the answer broke off before its end"


@dataclass(frozen=True)
class Request:
    """A conversation on its way to one model."""

    name: ModelName
    provider: Provider
    model: Model[Any]
    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    is_whole: Callable[..., bool]

    @property
    def kind(self) -> str:
        return self.provider.kind if self.provider.factory is None else self.model.system


async def prepare(
    name: ModelName, options: ModelOptions, messages: Sequence[Message], tools: Sequence[Any]
) -> Request:
    """Return the request that asks `name` for the next message. Raises `ModelError`."""
    provider = options.provider(name)
    model = await model_for(name, provider, options)
    check_request(str(name), _address(model), allowed=options.real_requests)
    protocol = protocol_of(name, provider)
    kind = provider.kind if protocol else model.system
    origin = Origin(name.provider, kind, model.system, provider.return_unknown_fields)
    sent = sendable(
        messages,
        plain_ids=getattr(protocol, "PLAIN_IDS", True),
        user_first=getattr(protocol, "USER_FIRST", True),
    )
    given = library_messages(sent, origin)
    if shown := getattr(protocol, "profile_for", _nothing)(given):
        provider = replace(provider, profile={**shown, **provider.profile})
        model = await model_for(name, provider, options)
    return Request(
        name=name,
        provider=provider,
        model=model,
        messages=given,
        settings=_settings(getattr(protocol, "SETTINGS", {}), provider, options),
        parameters=request_parameters(tools),
        is_whole=getattr(protocol, "is_whole", _always),
    )


def _nothing(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    return {}


def _always(response: ModelResponse, *, streamed: bool) -> bool:
    return True


def _address(model: Model[Any]) -> str | None:
    # The library's scripted models make no request and have no address.
    return None if model.system in ("function", "test") else model.base_url or ""


def _settings(usual: Mapping[str, Any], provider: Provider, options: ModelOptions) -> ModelSettings:
    merged: dict[str, Any] = {**usual, **options.settings, **provider.settings}
    if options.max_tokens is not None:
        merged.setdefault("max_tokens", options.max_tokens)
    return cast("ModelSettings", merged)


async def ask(request: Request, on_delta: OnDelta | None, attempts: int) -> Message:
    """Make the request once and return the answer.

    With `on_delta` the answer is streamed, by a model that can. A stream that breaks off gives no
    message at all. `attempts` is written into the answer. Raises `ModelError`, never one of a
    library.
    """
    name = str(request.name)
    try:
        response, streamed = await _answer(request, on_delta)
        if not request.is_whole(response, streamed=streamed):
            raise ModelUnreachable(model=name, attempts=attempts, reason=CUT_SHORT)
        return to_message(
            response,
            request.name,
            request.kind,
            max_tokens=request.settings.get("max_tokens"),
            attempts=attempts,
        )
    except ModelError:
        raise
    except Exception as error:
        failure = to_model_error(error, name, attempts, request.provider.secrets)
        failure.retry_after = retry_after(error)
        logger.info("%s: %s", failure.code, failure)
        # Without its cause: that one may show the request, its headers and its body.
        raise failure from None


async def _answer(request: Request, on_delta: OnDelta | None) -> tuple[ModelResponse, bool]:
    """Return what the library read, and whether it came as a stream."""
    if on_delta is not None:
        with suppress(NotImplementedError):  # some models of the library cannot stream
            return await _stream(request, _Listener(on_delta)), True
    response = await model_request(
        request.model,
        request.messages,
        model_settings=request.settings,
        model_request_parameters=request.parameters,
    )
    return response, False


async def _stream(request: Request, listener: _Listener) -> ModelResponse:
    async with model_request_stream(
        request.model,
        request.messages,
        model_settings=request.settings,
        model_request_parameters=request.parameters,
    ) as stream:
        async for event in stream:
            await listener.hear(event)
        return stream.get()


class _Listener:
    """Tells the text of a stream as it comes; goes silent once it cannot be told."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta: OnDelta | None = on_delta
        self._index = -1

    async def hear(self, event: ModelResponseStreamEvent) -> None:
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            await self._tell(event.index, event.part.content)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            await self._tell(event.index, event.delta.content_delta)

    async def _tell(self, index: int, text: str) -> None:
        if not isinstance(text, str) or not text or self._on_delta is None:
            return
        # Texts that something stands between are apart in the message too.
        apart = self._index not in (-1, index, index - 1)
        self._index = index
        try:
            told = self._on_delta(GAP + text if apart else text)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("A listener of deltas failed and is told no more.")
            self._on_delta = None


async def count_tokens(request: Request) -> int | None:
    """Return how many tokens the request takes by the provider's own count; None if it has none."""
    try:
        usage = await request.model.count_tokens(
            request.messages, request.settings, request.parameters
        )
    except NotImplementedError:
        return None
    except Exception as error:
        raise to_model_error(error, str(request.name), 1, request.provider.secrets) from None
    return usage.input_tokens
