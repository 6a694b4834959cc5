"""The retail agent: a scripted model that plays the calls of a task, turn by turn.

The model decides from the messages it is given and from nothing else: the user's message names the
task, and the calls that were asked before say which come next. So it may be started again in
another process at any time. Its call ids begin anew in every turn (`call_0`, `call_1`, ...), as
those of some providers do.

Two graphs over the same tools and the same scripts: `retail`, an ordinary agent, and
`retail_without_ledger`, whose tools are called by a plain node that pauses between them and runs
from its first line again after each answer: what the runtime's ledger is there to prevent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentruntime.graph import (
    END,
    START,
    Context,
    Message,
    State,
    StateGraph,
    Tool,
    ToolCall,
    create_agent,
    interrupt,
    register,
)
from benchmarks.retail_shop import load
from benchmarks.retail_store import WRITES, Store, dumps
from benchmarks.retail_tools import for_the_agent, retail_tools

Action = dict[str, Any]
Turn = list[Action]
TASK = re.compile(r"Task (\d+):")


def opening(task: dict[str, Any]) -> str:
    """The first message of a task: its number, for the script, and what the customer says."""
    return f"Task {task['id']}: {task['instruction']}"


def turns_of(actions: Sequence[Action], may_join: Any) -> list[Turn]:
    """Cut a task's calls, in order, into turns: a call joins the last turn if it may."""
    turns: list[Turn] = []
    for action in actions:
        if turns and may_join(turns[-1], action):
            turns[-1].append(action)
        else:
            turns.append([action])
    return turns


def independent(turn: Turn, action: Action, *, moves_shared_money: bool) -> bool:
    """Whether the order of this call and those of the turn makes no difference.

    Reads never do. Writes do not if they touch different orders or users and no gift card, whose
    balance the orders of a customer share.
    """
    writes = {x["name"] in WRITES for x in (*turn, action)}
    if writes == {False}:
        return True
    if writes == {True, False} or moves_shared_money:
        return False
    return target(action) not in {target(x) for x in turn}


def target(action: Action) -> str:
    """The order or user that a writing call changes."""
    return str(action["arguments"].get("order_id") or action["arguments"].get("user_id"))


class Script:
    """The model of all tasks: `(messages, tools) -> Message`."""

    def __init__(self, turns: dict[int, list[Turn]]) -> None:
        self._turns = turns

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """Ask for the calls of the first turn that was not asked yet, or say that all is done."""
        first = next(m for m in messages if m.role == "user")
        found = TASK.match(first.content)
        if not found:
            return Message.assistant("I only know the tasks by their numbers.")
        turns = self._turns[int(found[1])]
        asked = sum(1 for m in messages if m.role == "assistant" and m.tool_calls)
        if asked >= len(turns):
            return Message.assistant("Everything you asked for is done.")
        calls = [
            ToolCall(
                id=f"call_{n}", name=action["name"], arguments=for_the_agent(action["arguments"])
            )
            for n, action in enumerate(turns[asked])
        ]
        return Message.assistant("One moment, please.", tool_calls=calls)


def careful_turns(tasks: list[dict[str, Any]], users: dict[str, Any]) -> dict[int, list[Turn]]:
    """The turns of every task by its id, joined only where the order makes no difference."""

    def of(task: dict[str, Any]) -> list[Turn]:
        methods = users[task["user_id"]]["payment_methods"].values()
        gift = any(method["source"] == "gift_card" for method in methods)
        return turns_of(
            task["actions"], lambda turn, x: independent(turn, x, moves_shared_money=gift)
        )

    return {task["id"]: of(task) for task in tasks}


def crowded_turns(tasks: list[dict[str, Any]]) -> dict[int, list[Turn]]:
    """The turns of every task by its id: writes in a row are one turn, to be made in order."""

    def same_kind(turn: Turn, action: Action) -> bool:
        return (turn[-1]["name"] in WRITES) == (action["name"] in WRITES)

    return {task["id"]: turns_of(task["actions"], same_kind) for task in tasks}


def without_ledger(model: Script, tools: list[Tool]) -> StateGraph:
    """A graph that calls the tools from a node of its own, so that nothing is recorded."""
    by_name = {tool.name: tool for tool in tools}

    def think(state: State) -> Message:
        return model(state.messages, tools)

    def act(state: State, ctx: Context) -> list[Message]:
        asked, answers = state.messages[-1], []
        for call in asked.tool_calls:
            given: dict[str, Any] = {"ctx": ctx, **call.arguments}
            if call.name in WRITES:
                interrupt({"tool": call.name, "arguments": call.arguments, "call": call.id})
                given["idempotency_key"] = f"{asked.id}:{call.id}"
            result = by_name[call.name].fn(**given)
            answers.append(Message.tool(dumps(result), tool_call_id=call.id))
        return answers

    graph = StateGraph(State)
    graph.add_node("model", think)
    graph.add_node("act", act)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model",
        lambda state: "act" if state.messages[-1].tool_calls else END,
        {"act": "act", END: END},
    )
    graph.add_edge("act", "model")
    return graph


def register_retail(data: Path, journal: Path) -> None:
    """Register both graphs over a data directory and a journal file."""
    tasks = json.loads((data / "tasks.json").read_text())
    tools = retail_tools(Store(data, journal))
    careful = Script(careful_turns(tasks, load(data)["users"]))
    register("retail", create_agent(model=careful, tools=tools))
    register("retail_without_ledger", without_ledger(Script(crowded_turns(tasks)), tools))
