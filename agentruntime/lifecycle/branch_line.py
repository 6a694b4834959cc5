"""The line of steps of one branch: read back from its rows, worked off, recorded step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from django.db.models import F

from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    AgentRuntimeError,
    Cancelled,
    GraphChanged,
    RecursionLimitReached,
    StaleState,
)
from agentruntime.graph import END, State, StateGraph, ToolNode
from agentruntime.graph.messages import Message
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.branch_log import (
    REPLACE,
    Change,
    History,
    apply,
    as_result,
    changes_of,
    dump_changes,
    given_state,
    load_changes,
)
from agentruntime.lifecycle.gate import same_question
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.pause import withdraw
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.record import StepRecord, writing
from agentruntime.lifecycle.recording import record_again
from agentruntime.lifecycle.results import Later, NodeResult, Waiting
from agentruntime.lifecycle.step import join_result, left_behind
from agentruntime.models import BranchStep, Interrupt, InterruptStatus, Run, ToolExecution
from agentruntime.models.transactions import durably

Take = Callable[[Progress, Control], NodeResult | Waiting | Later]


@dataclass
class Branch:
    """A line of steps beside others. `waits` is what a person must answer before it is entered."""

    progress: Progress
    history: History = field(default_factory=History)
    waits: Waiting | None = None

    @property
    def is_at_its_end(self) -> bool:
        return self.progress.next_node in (END, self.progress.until)


# --- reading back ----------------------------------------------------------------------------


def steps_at(progress: Progress, opened_at: str) -> list[BranchStep]:
    rows = BranchStep.objects.filter(thread_id=progress.thread.pk, opened_at=opened_at)
    return list(rows.order_by("index", "number"))


def load_branches(progress: Progress) -> list[Branch]:
    rows = steps_at(progress, progress.place)
    if not rows:
        raise GraphChanged(reason=f"the branches of {progress.place} are gone")
    return [
        read_back(progress, progress.graph, progress.state, progress.prefix, list(steps))
        for _, steps in groupby(rows, key=lambda row: row.index)
    ]


def read_back(
    outer: Progress, graph: StateGraph, state: State, prefix: str, steps: Sequence[BranchStep]
) -> Branch:
    beginning, *done = steps
    history = History()
    try:
        state = given_state(state, beginning)
        for row in done:
            messages = [Message.model_validate(one) for one in row.result["messages"]]
            changes = load_changes(graph.state, row.result["changes"])
            history.messages += messages
            history.changes += changes
            state = apply(state, changes, messages)
        until = beginning.result["until"]
    except (AgentRuntimeError, KeyError, TypeError, ValueError) as error:
        raise GraphChanged(reason=f"branch {beginning} cannot be read back: {error}") from None
    progress = replace(
        outer,
        graph=graph,
        state=state,
        next_node=steps[-1].next_node,
        stored={},
        unsaved=[],
        unrecorded=[],
        opened_at=beginning.opened_at,
        index=beginning.index,
        done=len(done),
        until=until,
        prefix=prefix,
    )
    return Branch(progress, history)


def find_open_questions(progress: Progress, branches: Iterable[Branch]) -> None:
    """Note for every branch what it asks that nobody has answered."""
    asked = Interrupt.objects.filter(run=progress.run, status=InterruptStatus.OPEN)
    still = list(asked.order_by("created_at"))
    for branch in branches:
        line = branch.progress
        node = line.graph.nodes.get(line.next_node)
        if node is None or isinstance(node, ToolNode):
            continue  # a turn looks at its calls itself
        mine = [one for one in still if f"{one.scope}:".startswith(f"{line.scope}:")]
        if mine:
            scopes = [line.scope, *(one.scope for one in mine)]
            branch.waits = Waiting([same_question(one) for one in mine], scopes)


# --- working ---------------------------------------------------------------------------------


def work_off(branch: Branch, control: Control, take: Take) -> Waiting | Later | None:
    """Take step after step of one branch; return what it waits for, or None at its end."""
    progress = branch.progress
    while not branch.is_at_its_end:
        if branch.waits is not None:
            return branch.waits
        control.check()
        if control.draining_since is not None and not progress.prefix:
            raise Cancelled
        check_limit(progress, 1)
        result = take(progress, control)
        if isinstance(result, Waiting | Later):
            return result
        _record(branch, result)
    return None


def check_limit(progress: Progress, more: int) -> None:
    limit = settings.recursion_limit(progress.run.config)
    if progress.steps + more > limit:
        node = progress.prefix + progress.next_node
        raise RecursionLimitReached(steps=progress.steps, limit=limit, node=node)


def _record(branch: Branch, result: NodeResult) -> None:
    """Make a step of a branch durable, and take it in."""
    progress = branch.progress
    if progress.unrecorded:
        record_again(progress)
    kind, label = progress.graph.state, f"{progress.next_node} #{progress.index}"
    changes = changes_of(kind, result, label)
    step, state = join_result(progress, as_result(result.messages, changes, goto=result.goto))
    left = left_behind(progress, step.next_node, result.goto)
    changes += [Change(name, REPLACE, value, label) for name, value in left.items()]
    stored = {
        "messages": [one.model_dump(mode="json") for one in step.messages],
        "changes": dump_changes(kind, changes),
    }
    crash_point("P5")
    _append(progress, step, stored)
    if result.leftover:
        withdraw(progress.lease, result.leftover)
    branch.history.messages += step.messages
    branch.history.changes += changes
    progress.done += 1
    progress.state, progress.next_node, progress.stored = state, step.next_node, step.state


def _append(progress: Progress, step: StepRecord, result: dict[str, Any]) -> None:
    lease, number = progress.lease, progress.done + 1
    place = (progress.opened_at, progress.index, number)
    columns: dict[str, Any] = {"node": step.node, "next_node": step.next_node, "result": result}

    def work() -> int:
        run = Run.held(lease)
        same = BranchStep.objects.filter(
            thread_id=run.thread_id, opened_at=place[0], index=place[1], number=number
        )
        there = same.values_list("fencing_token", flat=True).first()
        if there == lease.fencing_token:
            return int(run.branched_steps)  # it had landed, only the answer to COMMIT was lost
        if there is not None:
            raise StaleState(thread=run.thread_id, expected=number - 1, found=number)
        with writing(run.thread_id, run.pk) as pen:
            pen.add_to_branch(*place, lease.fencing_token, **columns)
            opened_at = f"{progress.opened_at}/{progress.index}.{number}"
            for index, beginning in enumerate(step.branches):
                pen.add_to_branch(opened_at, index, 0, lease.fencing_token, **beginning)
            news = {"branch": progress.index, "next_node": step.next_node}
            pen.tell("node.finished", node=progress.prefix + step.node, **news)
            if step.next_node not in (END, progress.until):
                node = progress.prefix + step.next_node
                pen.tell("node.started", node=node, branch=progress.index)
        if progress.prefix:  # a call whose agent gets on is not one that kills its worker
            calls = ToolExecution.objects.filter(thread_id=run.thread_id, call_key=place[0])
            calls.update(forgiven_attempts=F("attempts"))
        run.save_fields(branched_steps=run.branched_steps + 1, attempts=0)
        return int(run.branched_steps)

    progress.run.branched_steps = durably(work)


def hand_up(branch: Branch, outer: Progress) -> None:
    """Hand what a branch could not finish to the line that opened it."""
    outer.unrecorded += branch.progress.unrecorded
    branch.progress.unrecorded = []
    outer.stop_seen = outer.stop_seen or branch.progress.stop_seen
