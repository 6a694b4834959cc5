"""People, a shop that counts its refunds, an agent that asks, and a way to let it work."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from agentruntime.graph import ApprovalRule, Message, ToolCall, create_agent, register, tool
from agentruntime.graph.registry import unregister

# What needs a set-up Django is imported where it is used: this file is read before that.


@dataclass
class Shop:
    """What really happened, outside of any transaction."""

    refunds: list[dict[str, Any]] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def rule() -> ApprovalRule:
    return ApprovalRule(
        title="Refund {amount} for {order_id}",
        permission="approvals.decide_refund",
        amount="amount",
        currency="EUR",
        target="order_id",
        editable=("amount",),
        expires_in=timedelta(days=2),
    )


@pytest.fixture
def person() -> Callable[..., Any]:
    """Makes people: `person("bob", "approvals.decide_refund", groups=["leads"])`."""

    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group, Permission

    def make(name: str, *permissions: str, groups: tuple[str, ...] = (), **more: Any) -> Any:
        more.setdefault("is_staff", True)
        user = get_user_model().objects.create_user(name, f"{name}@example.com", "secret", **more)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        for group in groups:
            user.groups.add(Group.objects.get_or_create(name=group)[0])
        return user

    return make


@pytest.fixture
def _work_by_hand(settings: Any) -> None:
    """No embedded worker beside the test: runs go on when the test says so."""
    settings.AGENTRUNTIME = {"EMBEDDED_WORKER": False}


@pytest.fixture
def alice(transactional_db: None, person: Callable[..., Any]) -> Any:
    """Who asks."""
    return person("alice", is_staff=False)


@pytest.fixture
def bob(transactional_db: None, person: Callable[..., Any]) -> Any:
    """Who may decide refunds."""
    return person("bob", "approvals.decide_refund")


def scripted(messages: list[Message], tools: Any) -> Message:
    """Ask for the calls that the customer's message names, then repeat what came of them."""
    last = messages[-1]
    if last.role == "user":
        return Message.assistant("I will do that.", tool_calls=calls_in(last.content))
    told = [m.content for m in messages if m.role == "tool"]
    return Message.assistant(" | ".join(told))


def calls_in(text: str) -> list[ToolCall]:
    return [
        ToolCall(id=f"call_{n}", name=one["tool"], arguments=one["arguments"])
        for n, one in enumerate(json.loads(text), start=1)
    ]


@pytest.fixture
def agent(shop: Shop, rule: ApprovalRule, _work_by_hand: None) -> Iterator[str]:
    """The name of an agent whose refunds are asked about."""

    @tool(effect="once", approval=rule)
    def refund(order_id: str, amount: Decimal, reason: str = "") -> dict[str, str]:
        """Pay money back."""
        shop.refunds.append({"order_id": order_id, "amount": str(amount), "reason": reason})
        return {"order_id": order_id, "amount": str(amount)}

    @tool(approval=True)
    def mail(to: str, text: str = "") -> str:
        """Write a mail."""
        shop.mails.append(to)
        return f"sent to {to}"

    @tool(approval=ApprovalRule(permission="approvals.decide_refund"))
    def explode(order_id: str) -> str:
        """Fail."""
        raise RuntimeError("the bank said no")

    register("clerk", create_agent(model=scripted, tools=[refund, mail, explode]))
    yield "clerk"
    unregister("clerk")


@pytest.fixture
def work() -> Callable[[], None]:
    """Lets every queued run work until it pauses or ends, in this thread."""

    from agentruntime.lifecycle.loop import execute
    from agentruntime.models import Run, RunStatus

    def go_on() -> None:
        for _ in range(50):
            queued = list(Run.objects.filter(status=RunStatus.QUEUED).values_list("pk", flat=True))
            if not queued:
                return
            for run_id in queued:
                execute(run_id)

    return go_on


@pytest.fixture
def ask(agent: str, alice: Any, work: Callable[[], None]) -> Callable[..., Any]:
    """Has the agent want a call and returns the approval that it waits for."""

    from agentruntime.lifecycle import start_run
    from approvals.models import Approval

    def wanted(tool: str = "refund", user: Any = None, **arguments: Any) -> Any:
        if tool == "refund":
            arguments = {"order_id": "1042", "amount": "30.00", "reason": "broken"} | arguments
        run = start_run(
            graph=agent,
            input=json.dumps([{"tool": tool, "arguments": arguments}]),
            user=user or alice,
        )
        work()
        return Approval.objects.get(run_id=run.pk)

    return wanted


@pytest.fixture
def answer_of() -> Callable[[Any], str]:
    """What the agent said in the end."""

    def read(approval: Any) -> str:
        from agentruntime.models import Message as Row

        return Row.objects.filter(thread_id=approval.thread_id).order_by("-ordinal")[0].content

    return read
