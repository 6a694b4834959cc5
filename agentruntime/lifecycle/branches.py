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
from collections.abc import Sequence
from functools import partial
from queue import Empty
from typing import Any

from agentruntime import executors
from agentruntime.exceptions import Cancelled, LeaseLost, StaleState, StateConflict, StepError
from agentruntime.graph.definition import BRANCHES
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.branch_line import (
    Branch,
    check_limit,
    find_open_questions,
    hand_up,
    load_branches,
    work_off,
)
from agentruntime.lifecycle.branch_log import JOIN
from agentruntime.lifecycle.inner_agent import run_agent
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.results import Later, NodeResult, Waiting
from agentruntime.lifecycle.step import take_step
from agentruntime.lifecycle.watch import wait_any

LEAVE_SECONDS = 5.0
"""How long branches that were told to end are waited for: they may be recording a step."""


def take(progress: Progress, control: Control) -> NodeResult | Waiting | Later:
    """Take the next step of a line: a node, or all branches that are open there.

    Raises `StepError`, or a signal of `control`.
    """
    progress.run_agent = partial(run_agent, take=take)
    if progress.next_node == BRANCHES:
        return _run_branches(progress, control)
    return take_step(progress, control)


def _run_branches(progress: Progress, control: Control) -> NodeResult | Waiting | Later:
    branches = load_branches(progress)
    find_open_questions(progress, branches)
    to_do = [one for one in branches if not one.is_at_its_end]
    check_limit(progress, sum(one.waits is None for one in to_do))
    crew = _Crew(progress, control, to_do)
    crew.work()
    pauses = crew.pauses
    if not pauses:
        return _joined(progress, branches)
    waiting = [one for one in pauses if isinstance(one, Waiting)]
    calls = [call for one in pauses for call in one.calls]
    moments = [one.seconds if isinstance(one, Later) else one.wake_in for one in pauses]
    first = min((one for one in moments if one is not None), default=None)
    if not waiting:
        return Later(first or 0.0, calls)
    questions = [question for one in waiting for question in one.questions]
    return Waiting(questions, [scope for one in waiting for scope in one.scopes], first, calls)


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
            work = executors.start(work_off, self._control.inbox, branch, control, take)
            self._at_work[work] = (branch, control)

    def _take_in(self, work: executors.Work) -> None:
        branch, control = self._at_work.pop(work)
        control.leave()
        hand_up(branch, self._progress)
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
            control.leave()
            hand_up(branch, self._progress)


def _rank(error: BaseException) -> int:
    """What is said first when several branches raise: that all must end, then what went wrong."""
    kinds = ((LeaseLost, StaleState), (Cancelled,), (StepError,))
    return next((n for n, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


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
