"""How far a claimed run has come: the state at the head, the node that comes next, what is
unsaved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentruntime import cache
from agentruntime.exceptions import AgentRuntimeError, GraphChanged
from agentruntime.graph import END, State, StateGraph, get_graph
from agentruntime.graph.definition import BRANCHES
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.graph.state import load_state
from agentruntime.lifecycle.budget import Meter
from agentruntime.lifecycle.conversation import keep_conversation, read_conversation
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.record import StepRecord
from agentruntime.models import Checkpoint, Lease, Run, Thread, ToolExecution

NOTHING_ASKED = -1
"""The version at which a run that nobody held before has asked something."""


@dataclass
class Progress:
    """A run in the hands of its worker. `version` is the newest one, saved or not; what was asked
    before the claim was asked at `claimed_version`.
    """

    run: Run
    lease: Lease
    graph: StateGraph
    thread: Thread
    version: int
    state: State
    next_node: str
    stored: dict[str, Any]
    unsaved: list[StepRecord] = field(default_factory=list)
    unrecorded: list[tuple[ToolExecution, Outcome]] = field(default_factory=list)
    """Calls that ended and could not be recorded: the next commit tries again."""
    stop_seen: bool = False
    """Whether a stop request was found while writing, before the keeper brought it."""
    claimed_version: int = NOTHING_ASKED
    opened_at: str = ""
    """Of a branch: the place that opened it; its number there; how many steps it has done; where it
    ends. A thread's own line has none of these."""
    index: int = 0
    done: int = 0
    until: str = ""
    prefix: str = ""
    """What stands before the names of the nodes: the place of the agent that is asked by a call."""
    run_agent: Callable[..., Any] = lambda *_: None
    """How a call asks an agent: set by whoever takes the steps."""
    meter: Meter = field(default_factory=Meter)
    wants_context: dict[str, bool] = field(default_factory=dict)
    """By the name of a node, whether it takes `ctx`."""
    _ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.claimed_version = self.version

    @property
    def steps(self) -> int:
        """How many steps the run has done, in all of its branches."""
        return self.version - self.run.base_version + self.run.branched_steps

    @property
    def place(self) -> str:
        """The place of the next step: no other step of the thread has the same."""
        return f"{self.opened_at}/{self.index}.{self.done}" if self.opened_at else str(self.version)

    @property
    def saved_version(self) -> int:
        """The thread's head version in the database, as far as this worker knows."""
        return self.version - len(self.unsaved)

    @property
    def scope(self) -> str:
        """The scope of what the next node asks."""
        return f"{self.prefix}{self.next_node}@{self.place}"

    @property
    def message_ids(self) -> set[str]:
        """The ids of all messages of the state."""
        if len(self._ids) != len(self.state.messages):
            self._ids = {one.id for one in self.state.messages}
        return self._ids

    def advance(self, step: StepRecord, state: State) -> None:
        """Take in a step that was committed, or kept back for the next commit."""
        self.message_ids.update(one.id for one in step.messages)
        self.version += 1
        self.state, self.next_node, self.stored = state, step.next_node, step.state

    def remember(self) -> None:
        """Keep the head for whoever claims the run next."""
        keep_conversation(
            self.thread.pk, self.version, self.state.messages, before=self.claimed_version
        )
        if self.run.base_version > 1:
            cache.forget(self.thread.pk, self.run.base_version - 1)  # where the last one ended

    def remember_unsaved(self) -> None:
        """Put the steps that are not in the database yet into the hot cache, under the saved
        head.
        """
        steps = [
            {
                "node": step.node,
                "next_node": step.next_node,
                "state": step.state,
                "messages": [one.model_dump(mode="json") for one in step.messages],
            }
            for step in self.unsaved
        ]
        cache.remember(
            self.thread.pk, self.saved_version, {"run": str(self.run.pk), "steps": steps}, "ahead"
        )


def load_progress(
    run: Run,
    lease: Lease,
    thread: Thread | None = None,
    head: Checkpoint | None = None,
    newest: Sequence[MessageValue] = (),
) -> Progress:
    """Return where a claimed run stands; `thread`, `head` and the `newest` messages are what the
    claim has read already.

    Raises `GraphChanged` if today's code cannot go on with it.
    """
    try:
        graph = get_graph(run.graph)
    except AgentRuntimeError as error:
        raise GraphChanged(reason=str(error).rstrip(".")) from None
    for source in graph.sources:
        source.load()
    if thread is None or head is None:
        thread = Thread.objects.get(pk=run.thread_id)
        head = Checkpoint.objects.get(thread_id=thread.pk, version=thread.head_version)
    if not isinstance(head.state, dict):
        raise GraphChanged(reason=f"the state of version {head.version} cannot be read back")
    messages = read_conversation(thread, head, newest)
    try:
        state = load_state(graph.state, head.state, messages)
    except AgentRuntimeError as error:
        raise GraphChanged(reason=f"the stored state does not fit: {error}".rstrip(".")) from None
    progress = Progress(run, lease, graph, thread, head.version, state, head.next_node, head.state)
    if not run.config.get("durable_checkpoint_every_step", True):
        _take_up_unsaved(progress)
    if progress.next_node not in {*graph.nodes, END, BRANCHES}:
        raise GraphChanged(reason=f"its next node {progress.next_node!r} is gone")
    return progress


def _take_up_unsaved(progress: Progress) -> None:
    """Go on from steps that only the cache has, if it still has them."""
    entry = cache.recall(progress.thread.pk, progress.version, "ahead")
    if entry is None or entry.get("run") != str(progress.run.pk):
        return
    try:
        steps = [
            StepRecord(
                step["node"],
                step["next_node"],
                step["state"],
                [MessageValue.model_validate(one) for one in step["messages"]],
            )
            for step in entry["steps"]
        ]
        messages = list(progress.state.messages)
        for step in steps:
            messages += step.messages
        if steps:
            state = load_state(progress.graph.state, steps[-1].state, messages)
            progress.unsaved = steps
            progress.version += len(steps)
            progress.state, progress.next_node, progress.stored = (
                state,
                steps[-1].next_node,
                steps[-1].state,
            )
    except (AgentRuntimeError, KeyError, TypeError, ValueError):
        progress.unsaved = []
