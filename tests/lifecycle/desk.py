"""Agents that work together, for tests in several processes: what they do, they write to a file.

`python -m tests.lifecycle.desk RUN` works off one run in a process of its own; with `--die-at N` it
dies by SIGKILL when the journal has that many lines.
"""

import operator
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

from agentruntime.graph import (
    END,
    START,
    Message,
    State,
    StateGraph,
    ToolCall,
    agent_tool,
    create_agent,
    handoff,
    register,
    team,
    tool,
)
from agentruntime.graph.registry import unregister
from tests.agents import calls_of, results_of

JOURNAL = "DESK_JOURNAL"
DIE_AT = "DESK_DIES_AT"


def note(what):
    """Write down what was done, outside of any transaction; perhaps that was the last deed."""
    with Path(os.environ[JOURNAL]).open("a") as journal:
        journal.write(f"{what}\n")
    if str(len(noted())) == os.environ.get(DIE_AT):
        os.kill(os.getpid(), signal.SIGKILL)


def noted():
    path = Path(os.environ[JOURNAL])
    return path.read_text().split() if path.exists() else []


@tool(effect="once", approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    note(f"refund:{order}")
    return f"refunded {order}"


@tool
def look_up(order: str) -> str:
    """Find an order."""
    note(f"look_up:{order}")
    return f"{order} was paid"


def says(name, *turns):
    """A model that asks for these calls, turn by turn, then repeats the last result."""

    def model(messages, tools):
        mine = [one for one in calls_of(messages) if one.name in offered]
        note(f"{name}:{len(mine)}")
        if len(mine) < len(turns):
            tool_name, arguments = turns[len(mine)]
            made = ToolCall(id=f"{name}-{len(mine)}", name=tool_name, arguments=arguments)
            return Message.assistant("", tool_calls=[made])
        return Message.assistant(f"{name} says: {results_of(messages)[-1]}")

    offered = {tool_name for tool_name, _ in turns}
    return model


def handing_over():
    """Support looks the order up and hands over; billing pays it back after an approval."""
    to_billing = handoff(to="billing", description="Money matters", name="to_billing")
    support = create_agent(
        model=says("support", ("look_up", {"order": "1042"}), ("to_billing", {})),
        tools=[look_up, to_billing],
    )
    billing = create_agent(model=says("billing", ("refund", {"order": "1042"})), tools=[refund])
    return team(support=support, billing=billing)


def asking():
    """A manager asks a clerk, who looks the order up and pays it back after an approval."""
    clerk = create_agent(
        model=says("clerk", ("look_up", {"order": "7"}), ("refund", {"order": "7"})),
        tools=[look_up, refund],
    )
    ask = agent_tool(clerk, "ask_clerk", "Ask the clerk.")
    return create_agent(
        model=says("manager", ("ask_clerk", {"message": "pay order 7 back"})), tools=[ask]
    )


class Tally(State):
    done: Annotated[list[str], operator.add] = []


def three():
    """Three branches; the last one waits until the others are recorded, then dies if it is to."""

    def branch(name):
        def work(state):
            if name == "c":
                wait_for_others()
            note(name)
            return {"done": [name]}

        return work

    graph = StateGraph(Tally)
    for name in "abc":
        graph.add_node(name, branch(name)).add_edge(START, name).add_edge(name, "join")
    return graph.add_node("join", lambda state: None).add_edge("join", END)


def wait_for_others():
    from agentruntime.models import BranchStep

    until = time.monotonic() + 20
    while BranchStep.objects.filter(number=1).count() < 2 and time.monotonic() < until:
        time.sleep(0.01)


GRAPHS = {"desk-handoff": handing_over, "desk-asking": asking, "desk-three": three}


def register_all():
    for name, make in GRAPHS.items():
        unregister(name)
        register(name, make())


def main(run_id):
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from agentruntime.lifecycle.loop import execute

    register_all()
    execute(run_id)


if __name__ == "__main__":
    import uuid

    main(uuid.UUID(sys.argv[1]))
