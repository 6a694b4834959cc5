"""The clients of this process: one pool of connections per event loop and way to a provider.

A connection belongs to the event loop that opened it. When a loop is replaced, its clients go with
it; `close` them before the loop stops, so that no socket is left to the garbage collector.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
import threading
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from pydantic_ai.models import Model

from agentruntime.exceptions import InvalidModel
from agentruntime.llm.options import ModelName, ModelOptions, Provider

PROTOCOLS = {
    "openai": "agentruntime.llm.openai_chat",
    "openai-responses": "agentruntime.llm.openai_responses",
    "anthropic": "agentruntime.llm.anthropic_messages",
}
OTHERS = "agentruntime.llm.library_models"
EXTRAS = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}


@dataclass
class Connections:
    """The clients and models of one event loop, by what they were made from."""

    clients: dict[Any, httpx2.AsyncClient] = field(default_factory=dict)
    models: dict[Any, Model[Any]] = field(default_factory=dict)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()
_lock = threading.Lock()


def _forget() -> None:
    global _of_loops, _lock
    _of_loops, _lock = WeakKeyDictionary(), threading.Lock()


# A child of this process shares no socket with it.
os.register_at_fork(after_in_child=_forget)


def protocol_of(name: ModelName, provider: Provider) -> ModuleType | None:
    """Return the adapter's module; None for a model that the provider's own factory makes.

    Raises `InvalidModel` where the library that the adapter wraps is not installed.
    """
    if provider.factory is not None:
        return None
    try:
        return importlib.import_module(PROTOCOLS.get(provider.kind, OTHERS))
    except ImportError:
        raise _not_installed(name, provider) from None


def _not_installed(name: ModelName, provider: Provider) -> InvalidModel:
    extra = EXTRAS.get(provider.kind)
    wanted = f"agentruntime[{extra}]" if extra else f"pydantic-ai-slim[{provider.kind}]"
    problem = f"its library is not installed (pip install {wanted})"
    return InvalidModel(model=str(name), problem=problem, attempts=0)


async def model_for(name: ModelName, provider: Provider, options: ModelOptions) -> Model[Any]:
    """Return the library's model for `name` on the running event loop, made once."""
    with _lock:
        here = _of_loops.setdefault(asyncio.get_running_loop(), Connections())
    key = (name, _way(provider, options), repr(sorted(provider.profile.items())))
    if key not in here.models:
        # Importing an SDK and reading certificates takes a second or two, once.
        made = await asyncio.to_thread(_make, name, provider, options, here)
        here.models.setdefault(key, made)
    return here.models[key]


def _way(provider: Provider, options: ModelOptions) -> tuple[Any, ...]:
    return (
        provider.kind,
        provider.base_url,
        provider.api_key,
        provider.organization,
        provider.project,
        tuple(sorted(provider.headers.items())),
        provider.factory,
        options.proxy,
        options.connect_timeout,
        options.silence_timeout,
    )


def _make(
    name: ModelName, provider: Provider, options: ModelOptions, here: Connections
) -> Model[Any]:
    protocol = protocol_of(name, provider)
    if protocol is None:
        assert provider.factory is not None
        made: Model[Any] = provider.factory(name.name)
        return made
    with _lock:
        way = _way(provider, options)
        if way not in here.clients:
            here.clients[way] = _client(options)
    try:
        model: Model[Any] = protocol.make_model(name, provider, here.clients[way])
    except ImportError:
        raise _not_installed(name, provider) from None
    return model


def _client(options: ModelOptions) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(options.silence_timeout, connect=options.connect_timeout)
    return httpx2.AsyncClient(
        timeout=timeout,
        verify=_certificates(),
        proxy=options.proxy or None,
        # The environment is read by the settings only; and a redirect would take the key along.
        trust_env=False,
        follow_redirects=False,
    )


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


async def close() -> None:
    """Close the connections of the running event loop. The next request opens new ones."""
    with _lock:
        here = _of_loops.pop(asyncio.get_running_loop(), None)
    if here is None:
        return
    for model in here.models.values():
        async with model:  # at its end, one that has a client of its own closes it
            pass
    for client in here.clients.values():
        await client.aclose()
