"""The retail shop's tools for an agent, made from the shop's own methods.

A tool's schema is the method's signature and docstring; the thread is the namespace. Every tool
that writes asks a person first. Those that move money or goods are `once`, with the journal to ask
after a kill; the two that only set an address are `repeatable`, and for them the store honours
the call key, as such a provider must.

An address of the shop has a field `state`. A tool parameter of that name is the runtime's, so the
agent's tools call the field `region`: `for_the_agent` and `for_the_shop` translate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agentruntime.graph import NOT_DONE, ApprovalRule, Context, Tool, tool
from benchmarks.retail_shop import Shop
from benchmarks.retail_store import WRITES, Store

READS = (
    "find_user_id_by_email",
    "find_user_id_by_name_zip",
    "get_user_details",
    "get_order_details",
    "get_product_details",
    "list_all_product_types",
    "calculate",
    "transfer_to_human_agents",
)
AGENT_NAMES = {"state": "region"}
SHOP_NAMES = {theirs: ours for ours, theirs in AGENT_NAMES.items()}
REPEATABLE = frozenset({"modify_pending_order_address", "modify_user_address"})


def retail_tools(store: Store) -> list[Tool]:
    """Every tool of the shop over one store, reads first."""
    return [reader(store, name) for name in READS] + [
        writer(store, name) for name in sorted(WRITES)
    ]


def for_the_agent(arguments: dict[str, Any]) -> dict[str, Any]:
    """The shop's arguments under the names that the agent's tools have."""
    return {AGENT_NAMES.get(name, name): value for name, value in arguments.items()}


def for_the_shop(arguments: dict[str, Any]) -> dict[str, Any]:
    """The agent's arguments under the shop's names."""
    return {SHOP_NAMES.get(name, name): value for name, value in arguments.items()}


def reader(store: Store, name: str) -> Tool:
    """A tool that reads; it asks nobody and may run again."""

    def call(ctx: Context, **arguments: Any) -> Any:
        return store.read(ctx.thread_id, name, arguments)

    return tool(name=name)(dressed(call, name, "ctx"))


def writer(store: Store, name: str) -> Tool:
    """A tool that writes, behind an approval."""
    repeatable = name in REPEATABLE

    def call(ctx: Context, idempotency_key: str, **arguments: Any) -> Any:
        return store.write(
            ctx.thread_id, idempotency_key, name, for_the_shop(arguments), honour_key=repeatable
        )

    def ask_the_journal(arguments: dict[str, Any], idempotency_key: str) -> Any:
        line = store.outcome(idempotency_key)
        return line["result"] if line else NOT_DONE

    target = "user_id" if name == "modify_user_address" else "order_id"
    rule = ApprovalRule(title=f"{name.replace('_', ' ').capitalize()}: {{{target}}}")
    if repeatable:
        options: dict[str, Any] = {"effect": "repeatable"}
    else:
        options = {"effect": "once", "reconcile": ask_the_journal}
    return tool(name=name, approval=rule, **options)(dressed(call, name, "ctx", "idempotency_key"))


def dressed(call: Callable[..., Any], name: str, *injected: str) -> Callable[..., Any]:
    """`call` with the signature, hints and docstring of the shop's method, and `injected`."""
    method = getattr(Shop, name)
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())[1:]
    given = [p.replace(name=AGENT_NAMES.get(p.name, p.name)) for p in parameters]
    extra = [inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY, annotation=Any) for x in injected]
    call.__name__, call.__doc__ = name, method.__doc__
    call.__annotations__ = {p.name: p.annotation for p in (*given, *extra)}
    call.__signature__ = inspect.Signature([*given, *extra])  # type: ignore[attr-defined]
    return call
