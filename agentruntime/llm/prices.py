"""What an answer cost, and what one would cost, by the price table that the library brings.

The table is part of the genai-prices release; nothing is fetched. Amounts are US dollars.
"""

from __future__ import annotations

import logging
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from agentruntime.graph.messages import Message

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

logger = logging.getLogger(__name__)

COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def usage_record(response: ModelResponse) -> dict[str, Any]:
    """Return the usage of an answer as JSON: tokens by kind, details, cost in dollars as text.

    `input_tokens` includes what was read from and written to a cache. `unmeasured` stands where the
    provider told no usage.
    """
    usage = response.usage
    if usage.unmeasured_requests:
        return {"unmeasured": True}
    record: dict[str, Any] = {name: getattr(usage, name) for name in COUNTED}
    if details := {name: value for name, value in usage.details.items() if name not in COUNTED}:
        record["details"] = details
    cost = cost_of_response(response)
    if cost is not None:
        record["cost"] = str(cost)
    return record


def joined_usage(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return what two answers took together; `unmeasured` if one of them did not say."""
    joined: dict[str, Any] = {
        name: first.get(name, 0) + second.get(name, 0)
        for name in COUNTED
        if name in first or name in second
    }
    joined |= {name: True for name in ("unmeasured",) if name in first or name in second}
    if details := second.get("details", first.get("details")):
        joined["details"] = details
    if "cost" in first and "cost" in second:
        joined["cost"] = str(Decimal(first["cost"]) + Decimal(second["cost"]))
    return joined


def cost_of_response(response: ModelResponse) -> Decimal | None:
    """Return the price of an answer of the library; None where the table has no such model."""
    if not response.model_name or response.usage.unmeasured_requests:
        return None
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return None


def cost(message: Message) -> Decimal | None:
    """Return what `message` cost when it was made, in dollars; None where that is not known."""
    usage = message.extra.get("usage")
    if not isinstance(usage, dict) or not isinstance(usage.get("cost"), str):
        return None
    try:
        return Decimal(usage["cost"])
    except InvalidOperation:
        logger.warning("The message %s has a cost that is no number.", message.id)
        return None


def price(model: str, *, input_tokens: int, output_tokens: int) -> Decimal | None:
    """Return what a request of that size would cost today, in dollars; None for unknown models.

    `model` is `provider:name`; of a chain the dearest counts. For a budget that is reserved before
    the call.
    """
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    prices = []
    for name in model.split(","):
        provider, _, bare = name.strip().partition(":")
        found = cost_of_response(
            ModelResponse(
                parts=[],
                usage=RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens),
                model_name=bare,
                provider_name=provider,
            )
        )
        if found is None:
            return None
        prices.append(found)
    return max(prices)
