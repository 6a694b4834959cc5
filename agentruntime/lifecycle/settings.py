"""The `config` of a run: what may be in it, and what it means where it says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import InvalidConfig
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.lifecycle.budget import check_budget
from agentruntime.signals import noticed

KNOWN = (
    "tool_timeout",
    "node_timeout",
    "recursion_limit",
    "at_once",
    "durable_checkpoint_every_step",
    "budget",
    "metadata",
)


def check_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a run's config as it is stored. Raises `InvalidConfig`, which names what is wrong.

    `metadata` is the host's own JSON and is passed through to `ctx.config`.
    """
    if config is not None and not isinstance(config, Mapping):
        raise InvalidConfig(reason="it is no object")
    given = dict(config or {})
    if unknown := sorted(set(given) - set(KNOWN)):
        raise InvalidConfig(
            reason=f"it has no {', '.join(map(repr, unknown))}; it may have: {', '.join(KNOWN)}"
        )
    for name, most in (("recursion_limit", 100_000), ("at_once", 1_000)):
        limit = given.get(name)
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= most
        ):
            raise InvalidConfig(reason=f"{name} is a whole number from 1 to {most}, not {limit!r}")
    durable = given.get("durable_checkpoint_every_step", True)
    if not isinstance(durable, bool):
        raise InvalidConfig(
            reason=f"durable_checkpoint_every_step is true or false, not {durable!r}"
        )
    if given.get("budget") is None:
        given.pop("budget", None)
    else:
        given["budget"] = check_budget(given["budget"])
    try:
        check_json(
            {name: value for name, value in given.items() if "timeout" not in name}, path="config"
        )
        return {name: _storable(value) for name, value in given.items()}
    except NotJson as error:
        raise InvalidConfig(reason=str(error)) from None


def laid_over(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with changes; of its budget only the limits that the changes name."""
    joined = {**config, **changes}
    if "budget" in changes:
        joined["budget"] = {**config.get("budget", {}), **changes["budget"]}
    return joined


def _storable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # no number above zero: the deadline is off
    try:
        check_json(value)
    except NotJson:
        return _shown(value)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 400:  # too long to be read, or written
        return f"a whole number of {value.bit_length()} bits"
    return str(value)[:100]


def deadline_seconds(config: Mapping[str, Any], name: str, default: float) -> float | None:
    """Return a timeout in seconds, or None where it is switched off.

    None or any number not above zero switches it off; what is no number logs a warning, and the
    default holds.
    """
    if name not in config:
        return default if default > 0 else None
    value = config[name]
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        noticed.send(
            sender=None,
            level="warning",
            event="timeout is no number, the default holds",
            facts={"name": name, "value": _shown(value), "default": default},
        )
        return default
    return seconds if seconds > 0 else None


def tool_timeout(config: Mapping[str, Any]) -> float | None:
    """Seconds that one tool call may take."""
    return deadline_seconds(config, "tool_timeout", runtime_settings().TOOL_TIMEOUT_SECONDS)


def node_timeout(config: Mapping[str, Any]) -> float | None:
    """Seconds that one node may take, with all of its tools."""
    return deadline_seconds(config, "node_timeout", runtime_settings().NODE_TIMEOUT_SECONDS)


def recursion_limit(config: Mapping[str, Any]) -> int:
    """How many steps a run may do."""
    return int(config.get("recursion_limit") or runtime_settings().RECURSION_LIMIT_STEPS)


def at_once(config: Mapping[str, Any]) -> int:
    """How many branches of one fork may work at once."""
    return int(config.get("at_once") or runtime_settings().BRANCHES_AT_ONCE)
