"""What a model call is given to work with: providers, limits, patience. Nothing here is read from
the environment; the caller passes it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentruntime.exceptions import InvalidModel

LEAST = {
    "max_tokens": 1,
    "attempts": 1,
    "empty_attempts": 1,
    "first_wait": 0,
    "longest_wait": 0,
    "connect_timeout": 0,
    "silence_timeout": 0,
}


@dataclass(frozen=True)
class Provider:
    """How one provider is reached.

    `kind` is what it speaks: `openai` (chat completions), `openai-responses`, `anthropic`, or any
    other provider that pydantic-ai knows by name (`google`, `groq`; its SDK has to be installed,
    and of the fields below it takes `api_key`, `base_url` and `settings`). Empty: `openai` where
    there is a `base_url`, else the name before the colon. `base_url` is empty for the provider's
    own; `headers` are added to every request. `settings` and `profile` are pydantic-ai's
    `ModelSettings` and `ModelProfile` keys, for what has no name here.
    `return_unknown_fields`: whether fields of an answer that no protocol names are sent back with
    it (some providers demand it, a few refuse it). `factory(name)` makes any other model of
    pydantic-ai instead; then only `settings` is used.
    """

    kind: str = ""
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    organization: str = ""
    project: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)
    return_unknown_fields: bool = True
    factory: Callable[[str], Any] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: the key, and the values of the headers."""
        return tuple(value for value in (self.api_key, *self.headers.values()) if len(value) > 3)


@dataclass(frozen=True)
class ModelOptions:
    """Providers by the name that stands before the colon, and limits. Times are in seconds.

    `max_tokens` bounds the output of one answer (None: the provider's own bound); `attempts` is how
    often one model is asked at most, `empty_attempts` how often if all it says is nothing;
    `first_wait` doubles with each attempt up to `longest_wait`, and a provider that asks for more
    patience than `longest_wait` is not waited for; `connect_timeout` and `silence_timeout` bound
    the time until a connection stands and between two bytes; `proxy` is an address or empty.
    `real_requests=False` lets no request leave this machine.
    """

    providers: Mapping[str, Provider] = field(default_factory=dict)
    max_tokens: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 4
    empty_attempts: int = 2
    first_wait: float = 0.5
    longest_wait: float = 60.0
    connect_timeout: float = 10.0
    silence_timeout: float = 300.0
    proxy: str = ""
    real_requests: bool = True

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:  # NaN is no number of these
                raise ValueError(f"{name} must be at least {least}, not {value!r}")
        for name in self.providers:
            if not name or name != name.strip() or {":", ","} & set(name):
                raise ValueError(f"no model can be named after a provider called {name!r}")

    def provider(self, model: ModelName) -> Provider:
        """Return the provider of `model`; raises `InvalidModel` where there is none or no key."""
        found = self.providers.get(model.provider)
        if found is None:
            known = ", ".join(sorted(self.providers)) or "none"
            raise _invalid(str(model), f"no provider is {model.provider!r}; there are: {known}")
        if not found.api_key and not found.base_url and found.factory is None:
            raise _invalid(str(model), f"the provider {model.provider!r} has no API key")
        kind = found.kind or ("openai" if found.base_url else model.provider)
        return replace(found, kind=kind)


@dataclass(frozen=True)
class ModelName:
    """`provider:name`, as it is written in a graph."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


def usual_providers(
    *, openai_api_key: str = "", openai_base_url: str = "", anthropic_api_key: str = ""
) -> dict[str, Provider]:
    """Return `openai`, `openai-responses` and `anthropic`, as far as there is a key or an
    address.
    """
    found: dict[str, Provider] = {}
    if openai_api_key or openai_base_url:
        for kind in ("openai", "openai-responses"):
            found[kind] = Provider(kind, api_key=openai_api_key, base_url=openai_base_url)
    if anthropic_api_key:
        found["anthropic"] = Provider(kind="anthropic", api_key=anthropic_api_key)
    return found


def read_model_names(text: str) -> tuple[ModelName, ...]:
    """Return the chain that `text` names: `provider:name`, or several with commas between them.

    The first is asked; the next one only where the one before it could not answer. A name may hold
    colons and slashes (`local:llama3:8b`). Raises `InvalidModel`.
    """
    chain = []
    for part in text.split(","):
        provider, colon, name = part.strip().partition(":")
        if not (provider.strip() and colon and name.strip()):
            raise _invalid(text, "a model is written provider:name, a chain with commas between")
        chain.append(ModelName(provider.strip(), name.strip()))
    return tuple(chain)


def _invalid(model: str, problem: str) -> InvalidModel:
    return InvalidModel(model=model, problem=problem, attempts=0)
