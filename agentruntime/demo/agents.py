"""The demo's agents: `support`, `desk`, `stock` for people, two more for `crash_demo`."""

from __future__ import annotations

from django.conf import settings

from agentruntime.demo.desk import desk
from agentruntime.demo.purchase import fulfil_model, purchase_model
from agentruntime.demo.scripted import support_model
from agentruntime.demo.stock import stock_desk
from agentruntime.demo.tools import (
    charge_card,
    confirm_shipping,
    lookup_order,
    print_label,
    refund,
    reserve_stock,
    send_receipt,
)
from agentruntime.graph import StateGraph, create_agent, register

INSTRUCTIONS = """You are the support agent of a small shop for tea and kitchen things.
Look an order up before you say or do anything about it. Pay back only orders that were delivered,
returned or cancelled, and never more than was paid. A person may be asked before a refund is made,
may change its amount, and may decline it: tell the customer what really happened, and the reason
that was given. Answer in a few plain sentences. Amounts are in euros."""


def provider_model() -> str:
    """Return `DEMO_MODEL`, else one of OpenAI's where that can be reached, else nothing."""
    named = str(getattr(settings, "DEMO_MODEL", ""))
    reached = any(getattr(settings, one, "") for one in ("OPENAI_API_KEY", "OPENAI_BASE_URL"))
    return named or ("openai:gpt-5-mini" if reached else "")


def support_desk() -> StateGraph:
    """Return the support agent: on a provider's model where there is one, else scripted."""
    return create_agent(
        model=provider_model() or support_model,
        tools=[lookup_order, refund, send_receipt],
        instructions=INSTRUCTIONS,
    )


register("support", support_desk())
register("desk", desk(provider_model()))
register("stock", stock_desk(provider_model()))
register("purchase", create_agent(model=purchase_model, tools=[charge_card, confirm_shipping]))
register(
    "fulfil", create_agent(model=fulfil_model, tools=[charge_card, reserve_stock, print_label])
)
