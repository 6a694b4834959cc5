"""Branches side by side: each durable by itself, joined in order, asked and answered one by one."""

import operator
import threading
from typing import Annotated

import pytest

from agentruntime.exceptions import InvalidConfig, InvalidGraph
from agentruntime.graph import (
    END,
    START,
    Command,
    Message,
    Send,
    State,
    StateGraph,
    ToolNode,
    ToolResult,
    interrupt,
    once,
    register,
    tool,
)
from agentruntime.lifecycle import fork_thread, resume_run, retry_run, start_run, stop_run
from agentruntime.models import BranchStep, Checkpoint, Interrupt, ToolExecution
from tests.agents import call, registered


class Board(State):
    notes: Annotated[list[str], operator.add] = []
    items: list[str] = []
    item: str = ""
    word: str = ""


def fan(*names, node=None, join=None, state=Board):
    """START opens a branch for each name; all lead to `join`."""
    graph = StateGraph(state)
    for name in names:
        graph.add_node(name, node(name) if node else lambda state, name=name: {"notes": [name]})
        graph.add_edge(START, name).add_edge(name, "join")
    graph.add_node("join", join or (lambda state: {"word": "+".join(state.notes)}))
    return graph.add_edge("join", END)


def mapped(node, join=None):
    """A worker for each item."""
    graph = StateGraph(Board)
    graph.add_node("split", lambda state: None)
    graph.add_node("worker", node)
    graph.add_node("join", join or (lambda state: None))
    graph.add_edge(START, "split").add_edge("worker", "join").add_edge("join", END)
    return graph.add_conditional_edges(
        "split", lambda state: [Send("worker", {"item": one}) for one in state.items], ["worker"]
    )


def head(run):
    return Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()


def test_several_edges_open_branches_that_are_joined_in_order(drive, look):
    with registered(fan("c", "a", "b")) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["c", "a", "b"]
    assert head(run).state["word"] == "c+a+b"
    assert [row.next_node for row in Checkpoint.objects.order_by("version")] == [
        "__branches__",
        "join",
        END,
    ]
    finished = BranchStep.objects.filter(number=1).order_by("index")
    assert [row.node for row in finished] == ["c", "a", "b"]
