"""An agent that a call asks: a line of steps of its own, with a conversation of its own."""

from __future__ import annotations

from typing import Any

from agentruntime.graph import END, START, StateGraph
from agentruntime.graph.messages import Message
from agentruntime.lifecycle.acting import Acting
from agentruntime.lifecycle.branch_line import (
    Take,
    find_open_questions,
    hand_up,
    read_back,
    steps_at,
    work_off,
)
from agentruntime.lifecycle.branch_log import beginnings
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.record import writing
from agentruntime.lifecycle.turn import Turn
from agentruntime.models import Run
from agentruntime.models.transactions import durably


def run_agent(turn: Turn, call: Acting, control: Control, *, take: Take) -> Any:
    """Bring the agent that a call asks to its answer, or to a pause that the call's execution
    tells of; return the answer. Raises `StepError`, or a signal of `control`.
    """
    outer, agent = turn.progress, call.tool.agent
    prefix = f"{turn.node}/{call.tool.name}/"
    if not steps_at(outer, call.row.call_key):
        _ask_agent(outer, call, agent, prefix)
    branch = read_back(outer, agent, agent.state(), prefix, steps_at(outer, call.row.call_key))
    find_open_questions(outer, [branch])
    try:
        call.execution.inner = work_off(branch, control, take)
    finally:
        control.leave()
        hand_up(branch, outer)
    if call.execution.inner is not None:
        return None
    state: Any = branch.progress.state
    if getattr(state, "output", None) is not None:
        return state.output
    said = [one.content for one in state.messages if one.role == "assistant"]
    return said[-1] if said else ""


def _ask_agent(outer: Progress, call: Acting, agent: StateGraph, prefix: str) -> None:
    lease, key = outer.lease, call.row.call_key
    message = Message.user(str(call.row.arguments["message"]))
    state = agent.state().model_copy(update={"messages": [message]})
    onward = agent.onward(START, state)
    given = {"given": {}, "messages": [message.model_dump(mode="json")], "until": END}
    first: dict[str, Any] = {"next_node": onward.node, "result": given}
    forks = beginnings(onward, state, outer.thread.pk)

    def work() -> None:
        run = Run.held(lease)
        if steps_at(outer, key):
            return  # the commit had landed, only its answer was lost
        with writing(run.thread_id, run.pk) as pen:
            pen.add_to_branch(key, 0, 0, lease.fencing_token, **first)
            for index, one in enumerate(forks):
                pen.add_to_branch(f"{key}/0.0", index, 0, lease.fencing_token, **one)
            pen.tell("node.started", node=prefix + onward.node)

    durably(work)
