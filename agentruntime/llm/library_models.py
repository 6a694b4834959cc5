"""The models of every other provider that the library knows by name: `google`, `groq` and so on."""

from __future__ import annotations

import inspect
from typing import Any

import httpx2
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider as LibraryProvider
from pydantic_ai.providers import infer_provider_class

from agentruntime.exceptions import InvalidModel
from agentruntime.llm.options import ModelName, Provider

PLAIN_IDS = True
USER_FIRST = True
SETTINGS = {"max_retries": 0}  # what is asked again is counted: no SDK does it by itself


def make_model(name: ModelName, provider: Provider, http: httpx2.AsyncClient) -> Model[Any]:
    """Return the library's model for `name`. It brings a client of its own: the SDKs differ.

    Raises `InvalidModel` for a provider that the library does not know or cannot reach like this,
    and `ImportError` where its SDK is not installed.
    """
    try:
        return infer_model(f"{provider.kind}:{name.name}", lambda kind: _reach(kind, provider))
    except ImportError:
        raise
    except Exception as error:
        problem = f"no model of the library: {str(error).splitlines()[0][:200]}"
        raise InvalidModel(model=str(name), problem=problem, attempts=0) from None


def _reach(kind: str, provider: Provider) -> LibraryProvider[Any]:
    found = infer_provider_class(kind)
    # Always a key, so that none is taken from the environment.
    given = {"api_key": provider.api_key or "none", "base_url": provider.base_url or None}
    takes = inspect.signature(found.__init__).parameters
    if provider.base_url and "base_url" not in takes:
        raise ValueError(f"{kind!r} takes no address")
    return found(**{one: value for one, value in given.items() if value and one in takes})


def is_whole(response: ModelResponse, *, streamed: bool) -> bool:
    """Say whether the answer came to its end: a stream without a reason to stop was cut."""
    # What the provider itself said: where it says nothing, most models make "stop" of it.
    details = response.provider_details or {}
    said = details.get("finish_reason") or details.get("refusal")
    if response.provider_name == "xai":
        said = response.finish_reason
    return not streamed or bool(said)
