"""Agents that charge and ask, and a process that starts or answers one of them.

`python -m tests.stories.purchase_agents start GRAPH MESSAGE [THREAD]`, `... answer RUN`.
Effects are lines of a file, flushed to the disk; the models decide from the messages.
"""

import os
import sys
from pathlib import Path


def effect(line: str) -> None:
    """Do something to the world."""
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def register_all() -> None:
    from agentruntime.graph import (
        END,
        START,
        State,
        StateGraph,
        create_agent,
        interrupt,
        once,
        register,
    )
    from tests.agents import asks_for, call

    class Refund(State):
        status: str = ""

    def wait_for_approval(state):
        once("tell", effect, "told the approver")
        decision = interrupt({"order": "1042"}, message="Approve this refund?")
        return {"status": "approved" if decision else "rejected"}

    telling = StateGraph(Refund)
    telling.add_node("wait_for_approval", wait_for_approval)
    telling.add_edge(START, "wait_for_approval").add_edge("wait_for_approval", END)
    register("story-telling", telling)

    def charge_card(amount: int, idempotency_key: str) -> str:
        effect(f"charged {amount} {idempotency_key}")
        return "charged"

    def confirm_shipping(address: str) -> str:
        return f"shipping: {interrupt({'address': address})}"

    def refund_payment(amount: int) -> str:
        effect(f"refunded {amount}")
        return "refunded"

    purchase = [
        call("charge_card", "call_charge", amount=49),
        call("confirm_shipping", "call_ship", address="1 Main St"),
    ]
    register(
        "story-purchase",
        create_agent(model=asks_for(purchase), tools=[charge_card, confirm_shipping]),
    )

    def two_turns(messages, tools):
        wanted = "refund_payment" if "refund" in last_question(messages) else "charge_card"
        return asks_for([call(wanted, "call_1", amount=49)])(messages, tools)

    register("story-reuse", create_agent(model=two_turns, tools=[charge_card, refund_payment]))


def last_question(messages) -> str:
    return next(one.content for one in reversed(messages) if one.role == "user")


def main(verb: str, *words: str) -> None:
    import django

    django.setup()
    register_all()
    from agentruntime.broker import stop_embedded_worker
    from agentruntime.lifecycle import resume_run, start_run, wait_for_run
    from agentruntime.models import Interrupt

    if verb == "start":
        graph, message, thread = (*words, None)[:3]
        run = start_run(graph=graph, input=message, thread_id=thread)
    else:
        question = Interrupt.objects.get(run_id=words[0], status="open")
        run = resume_run(interrupt_id=question.pk, value=True)
    run = wait_for_run(run.pk, 30)
    stop_embedded_worker()
    print(run.pk, run.thread_id, run.status, run.error_detail)


if __name__ == "__main__":
    main(*sys.argv[1:])
