"""Every setting of the runtime, its unit and its default. Read from `settings.AGENTRUNTIME`,
lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

S = TypeVar("S")


@dataclass(frozen=True)
class Settings:
    """The names that `AGENTRUNTIME` may have. Times are in seconds."""

    LEASE_SECONDS: float = 6.0
    """How long a claim holds without a beat."""
    BEAT_SECONDS: float = 2.0
    """How often the keeper of a process prolongs its leases."""
    STOP_POLL_SECONDS: float = 0.5
    """How often the keeper looks for stop requests."""
    SWEEP_SECONDS: float = 1.0
    """How often each worker process looks for work that nobody has."""
    SLICE_SECONDS: float = 30.0
    """How long one claim may run before it lets others have the worker."""
    GRACE_SECONDS: float = 10.0
    """How long a step may go on after SIGTERM before its run is given back."""
    CANCEL_SECONDS: float = 1.0
    """How long cancelled async work may take to unwind before it is given up."""
    DATABASE_PATIENCE_SECONDS: float = 60.0
    """How long a worker waits for a database that is away before it lets its run go."""
    TOOL_TIMEOUT_SECONDS: float = 300.0
    NODE_TIMEOUT_SECONDS: float = 900.0
    RECURSION_LIMIT_STEPS: int = 25
    BRANCHES_AT_ONCE: int = 8
    """How many branches of one fork may work at once."""
    BUDGET: Mapping[str, Any] = field(default_factory=dict)
    """What the model calls of a run may take, unless its config says: `tokens`, `cost` (dollars),
    `model_calls`, `seconds` of work."""
    RESERVED_OUTPUT_TOKENS: int = 1024
    """How long an answer is expected to be when a budget is reserved for its call."""
    MAX_CLAIMS: int = 5
    """How many claims in a row may end without a commit before the run is parked."""
    MAX_CALL_ATTEMPTS: int = 3
    """How often one call may kill its worker before it is parked."""
    CALLBACK_URL: str = "/api/v1/callbacks/"
    """Where the outside world finds the address of callbacks: the site's name belongs in here."""
    MAX_RESULT_BYTES: int = 1_048_576
    """The largest tool result, node update or message that is stored."""
    EMBEDDED_WORKER: bool | None = None
    """Whether a process without a broker works off its own runs. None: where there is no broker."""
    EMBEDDED_WORKER_THREADS: int = 8
    QUEUE_NAME: str = "agentruntime"
    CACHE_ALIAS: str = "default"
    CACHED_MESSAGES: int = 50
    """How many of the newest messages of a thread a cache entry holds."""
    CACHE_SECONDS: int = 86_400
    TOOLS: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of `@tool` by tool name, laid over what the code says."""
    SECRET_FIELDS: tuple[str, ...] = (
        "password", "passwd", "secret", "token", "api_key", "apikey", "authorization",
        "card_number", "cvv",
    )  # fmt: skip
    """Argument and result fields that are masked wherever they are shown."""
    BUSY_POLICY: str = "reject"
    """What a message does while a run of its thread waits or works, unless the thread says:
    `reject` (409), `queue` (the next run when this one ends), `cancel` (it ends that run)."""
    MAX_IN_LINE: int = 20
    """How many runs may wait for one thread."""
    TENANT_OF: str = ""
    """Dotted path of a function `(user) -> str` that names a user's tenant. Empty: one tenant."""
    TOKEN_DAYS: float = 30.0
    """How long an API token holds when its maker names no shorter time."""
    TOKEN_DEFAULT_SCOPES: tuple[str, ...] = ("read", "run")
    """What a token may do that was made without this app, and so without scopes."""
    RATE_LIMITS: Mapping[str, str] = field(default_factory=dict)
    """Calls per caller and time by scope, laid over those of `throttles`: {"run": "60/min"}.
    Passwords are counted per address and name (`login`) and per address (`login-address`)."""
    MAX_BODY_BYTES: int = 1_048_576
    """The largest JSON body that is read."""
    SOCKET_POLL_SECONDS: float = 1.5
    """How often watchers look for events that no hint told of."""
    SOCKET_RECHECK_SECONDS: float = 3.0
    """How often an open socket's right to watch is looked up anew."""
    SOCKET_SEND_SECONDS: float = 10.0
    """How long a watcher may take to accept one frame before it is dropped."""
    SOCKETS_PER_USER: int = 50
    """How many sockets and streams of one user a process serves at once."""
    EVENT_DAYS: float | None = None
    """How long events are kept. None: as long as their thread."""
    WEBHOOK_ALLOWED_NETWORKS: tuple[str, ...] = ()
    """Private networks that webhooks may be sent to, as in "10.1.0.0/16"."""
    MODEL_PROVIDERS: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of `agentruntime.llm.Provider` by the name that stands before the colon of a model."""
    MODEL_OPTIONS: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `agentruntime.llm.ModelOptions` other than the providers."""
    OPENAI_API_KEY: str = ""
    OPENAI_BASE_URL: str = ""
    ANTHROPIC_API_KEY: str = ""


@cache
def runtime_settings() -> Settings:
    """Return the settings in force. Raises `ImproperlyConfigured` for what it cannot be."""
    return read_settings("AGENTRUNTIME", Settings)


def read_settings(name: str, kind: type[S]) -> S:
    """Return the setting `name`, a dict, as a `kind`, a dataclass. Raises `ImproperlyConfigured`
    for an unknown name in it and for a value of another type than its field."""
    return read_fields(name, getattr(settings, name, {}), kind)


def read_fields(name: str, given: Any, kind: type[S], *, without: Sequence[str] = ()) -> S:
    """Return `given`, a dict that the settings hold under `name`, as a `kind`; see `read_settings`.
    The fields `without` are not for it to say.
    """
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{name} must be a dict, not {type(given).__name__}.")
    types = {one: hint for one, hint in get_type_hints(kind).items() if one not in without}
    if unknown := sorted(str(one) for one in set(given) - set(types)):
        raise ImproperlyConfigured(f"{name} has no setting named {', '.join(unknown)}.")
    for one, value in given.items():
        if not _fits(value, types[one]):
            wanted = " or ".join(_kinds(types[one]))
            raise ImproperlyConfigured(
                f"{name}[{one!r}] must be {wanted}, not {type(value).__name__}."
            )
    try:
        return kind(**given)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


WORDS = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a text",
    type(None): "None", Mapping: "a dict", Sequence: "a list", tuple: "a list",
    Callable: "a function",
}  # fmt: skip


def _choices(wanted: Any) -> list[Any]:
    return list(get_args(wanted)) if isinstance(wanted, UnionType) else [wanted]


def _kinds(wanted: Any) -> list[str]:
    return [WORDS[get_origin(one) or one] for one in _choices(wanted)]


def _fits(value: Any, wanted: Any) -> bool:
    return any(_is(value, get_origin(one) or one) for one in _choices(wanted))


def _is(value: Any, kind: Any) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float)
    if kind in (tuple, Sequence):  # a lone text would be read as its letters
        return isinstance(value, list | tuple | set | frozenset)
    return isinstance(value, kind)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "AGENTRUNTIME":
        runtime_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="agentruntime.conf")
