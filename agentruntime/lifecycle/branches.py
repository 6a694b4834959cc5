"""Several branches side by side, and agents that are asked by a call: lines of steps of their own.

Each step of a branch is recorded the moment it returns, so a finished one is never run again,
whoever takes the run over. When all branches of a fork have ended, what they brought is one step of
the line that opened them: messages and changes joined in the order of the branches. Where some wait
for a person, the run pauses with all their questions open; each is entered again when one of its
own is answered. When one fails, those at work come to their end, and then the run fails with its
error; a retry goes on with what is not finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from queue import Empty
from typing import Any

from django.db.models import F

from agentruntime import executors
from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    AgentRuntimeError,
    Cancelled,
    GraphChanged,
    LeaseLost,
    RecursionLimitReached,
    StaleState,
    StateConflict,
    StepError,
)
from agentruntime.graph import END, START, State, StateGraph, ToolNode
from agentruntime.graph.definition import BRANCHES
from agentruntime.graph.messages import Message
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.acting import Acting
from agentruntime.lifecycle.branch_log import (
    JOIN,
    REPLACE,
    Change,
    History,
    apply,
    as_result,
    beginnings,
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
from agentruntime.lifecycle.step import join_result, left_behind, take_step
from agentruntime.lifecycle.turn import Turn
from agentruntime.lifecycle.watch import wait_any
from agentruntime.models import BranchStep, Interrupt, InterruptStatus, Run, ToolExecution
from agentruntime.models.transactions import durably

LEAVE_SECONDS = 5.0
"""How long branches that were told to end are waited for: they may be recording a step."""


@dataclass
class Branch:
    """A line of steps beside others. `waits` is what a person must answer before it is entered."""

    progress: Progress
    history: History = field(default_factory=History)
    waits: Waiting | None = None

    @property
    def is_at_its_end(self) -> bool:
        return self.progress.next_node in (END, self.progress.until)


def take(progress: Progress, control: Control) -> NodeResult | Waiting | Later:
    """Take the next step of a line: a node, or all branches that are open there.

    Raises `StepError`, or a signal of `control`.
    """
    progress.run_agent = run_agent
    if progress.next_node == BRANCHES:
        return _run_branches(progress, control)
    return take_step(progress, control)


def run_agent(turn: Turn, call: Acting, control: Control) -> Any:
    """Bring the agent that a call asks to its answer, or to a pause that the call's execution
    tells of; return the answer. Raises `StepError`, or a signal of `control`.
    """
    outer, agent = turn.progress, call.tool.agent
    prefix = f"{turn.node}/{call.tool.name}/"
    if not _steps_at(outer, call.row.call_key):
        _ask_agent(outer, call, agent, prefix)
    branch = _read(outer, agent, agent.state(), prefix, _steps_at(outer, call.row.call_key))
    _find_open_questions(outer, [branch])
    try:
        call.execution.inner = _work_off(branch, control)
    finally:
        _hand_up(branch, outer)
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
        if _steps_at(outer, key):
            return  # the commit had landed, only its answer was lost
        with writing(run.thread_id, run.pk) as pen:
            pen.add_to_branch(key, 0, 0, lease.fencing_token, **first)
            for index, one in enumerate(forks):
                pen.add_to_branch(f"{key}/0.0", index, 0, lease.fencing_token, **one)
            pen.tell("node.started", node=prefix + onward.node)

    durably(work)


# --- reading back ----------------------------------------------------------------------------


def _steps_at(progress: Progress, opened_at: str) -> list[BranchStep]:
    rows = BranchStep.objects.filter(thread_id=progress.thread.pk, opened_at=opened_at)
    return list(rows.order_by("index", "number"))


def _load_branches(progress: Progress) -> list[Branch]:
    rows = _steps_at(progress, progress.place)
    if not rows:
        raise GraphChanged(reason=f"the branches of {progress.place} are gone")
    return [
        _read(progress, progress.graph, progress.state, progress.prefix, list(steps))
        for _, steps in groupby(rows, key=lambda row: row.index)
    ]


def _read(
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


def _find_open_questions(progress: Progress, branches: Iterable[Branch]) -> None:
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


def _work_off(branch: Branch, control: Control) -> Waiting | Later | None:
    """Take step after step of one branch; return what it waits for, or None at its end."""
    progress = branch.progress
    while not branch.is_at_its_end:
        if branch.waits is not None:
            return branch.waits
        control.check()
        if control.draining_since is not None and not progress.prefix:
            raise Cancelled
        _check_limit(progress, 1)
        result = take(progress, control)
        if isinstance(result, Waiting | Later):
            return result
        _record(branch, result)
    return None


def _check_limit(progress: Progress, more: int) -> None:
    limit = settings.recursion_limit(progress.run.config)
    if progress.steps + more > limit:
        node = progress.prefix + progress.next_node
        raise RecursionLimitReached(steps=progress.steps, node=node)


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
        there = [
            one for one in _steps_at(progress, place[0]) if (one.index, one.number) == place[1:]
        ]
        if there and there[0].fencing_token == lease.fencing_token:
            return int(run.branched_steps)  # it had landed, only the answer to COMMIT was lost
        if there:
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


def _run_branches(progress: Progress, control: Control) -> NodeResult | Waiting | Later:
    branches = _load_branches(progress)
    _find_open_questions(progress, branches)
    to_do = [one for one in branches if not one.is_at_its_end]
    _check_limit(progress, sum(one.waits is None for one in to_do))
    crew = _Crew(progress, control, to_do)
    crew.work()
    pauses = crew.pauses
    if not pauses:
        return _joined(progress, branches)
    waiting = [one for one in pauses if isinstance(one, Waiting)]
    moments = [one.seconds if isinstance(one, Later) else one.wake_in for one in pauses]
    first = min((one for one in moments if one is not None), default=None)
    if not waiting:
        return Later(first or 0.0)
    questions = [question for one in waiting for question in one.questions]
    return Waiting(questions, [scope for one in waiting for scope in one.scopes], first)


class _Crew:
    """The branches of one fork at work, so many at once."""

    def __init__(self, progress: Progress, control: Control, to_do: Sequence[Branch]) -> None:
        self._progress, self._control = progress, control
        self._ahead = deque(to_do)
        self._at_work: dict[executors.Work, tuple[Branch, Control]] = {}
        self._errors: list[BaseException] = []
        self.pauses: list[Waiting | Later] = []
        """What the branches wait for that are not at their end."""

    def work(self) -> None:
        """Work until every branch is at its end or waits. Raises what one of them raised."""
        try:
            self._start_some()
            while self._at_work:
                self._control.check()
                done, _ = wait_any(self._control, dict.fromkeys(self._at_work))
                for work in done:
                    self._take_in(work)
                self._start_some()
        except BaseException:
            self._leave()
            raise
        if self._errors:
            raise min(self._errors, key=_rank)
        self._control.check()
        if self._ahead:
            raise Cancelled

    def _start_some(self) -> None:
        at_once = settings.at_once(self._progress.run.config)
        ends = self._control.draining_since is not None and not self._progress.prefix
        while self._ahead and len(self._at_work) < at_once and not self._errors and not ends:
            branch = self._ahead.popleft()
            if branch.waits is not None:
                self.pauses.append(branch.waits)
                continue
            control = self._control.branch()
            work = executors.start(_work_off, self._control.inbox, branch, control)
            self._at_work[work] = (branch, control)

    def _take_in(self, work: executors.Work) -> None:
        branch, control = self._at_work.pop(work)
        self._control.leave(control)
        _hand_up(branch, self._progress)
        if work.error is not None:
            self._errors.append(work.error)
        elif work.result is not None:
            self.pauses.append(work.result)

    def _leave(self) -> None:
        """Have all that works end where it is, and wait for what is being recorded."""
        for _, control in self._at_work.values():
            control.abandon()
        until = executors.now() + LEAVE_SECONDS
        while not all(work.done for work in self._at_work) and executors.now() < until:
            try:
                self._control.inbox.get(timeout=max(until - executors.now(), 0.0))
            except Empty:
                break
        for branch, control in self._at_work.values():
            self._control.leave(control)
            _hand_up(branch, self._progress)


def _rank(error: BaseException) -> int:
    """What is said first when several branches raise: that all must end, then what went wrong."""
    kinds = ((LeaseLost, StaleState), (Cancelled,), (StepError,))
    return next((n for n, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


def _hand_up(branch: Branch, outer: Progress) -> None:
    """Hand what a branch could not finish to the line that opened it."""
    outer.unrecorded += branch.progress.unrecorded
    branch.progress.unrecorded = []
    outer.stop_seen = outer.stop_seen or branch.progress.stop_seen


# --- joining ---------------------------------------------------------------------------------


def _joined(progress: Progress, branches: Sequence[Branch]) -> NodeResult:
    """What all branches brought, in their order, as one step. Raises `StateConflict`.

    A field that no reducer joins, or that a branch replaced as a whole, gets the value that it has
    at the end of the branches that changed it, which is one and the same. Fields of subgraphs that
    ended within the branches are left out.
    """
    graph, until = progress.graph, branches[0].progress.until
    deltas: dict[str, list[tuple[str, Any]]] = {}
    replaced: dict[str, Any] = {}
    changed = {one.field: None for branch in branches for one in branch.history.changes}
    for name in changed:
        if not graph.keeps(name, until):
            continue
        by = [(b, [one for one in b.history.changes if one.field == name]) for b in branches]
        touched = [(branch, changes) for branch, changes in by if changes]
        if graph.reduces(name) and all(one.how == JOIN for _, found in touched for one in found):
            deltas[name] = [(one.by, one.value) for _, found in touched for one in found]
            continue
        values = [getattr(branch.progress.state, name) for branch, _ in touched]
        if any(value != values[0] for value in values[1:]):
            raise StateConflict(field=name, calls=", ".join(found[-1].by for _, found in touched))
        replaced[name] = values[0]
    messages = [one for branch in branches for one in branch.history.messages]
    return NodeResult(messages=messages, deltas=deltas, replaced=replaced, goto=until)
