"""One node call, and the step that it makes: the commit of it stands in `commit`."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import replace
from typing import Any

from agentruntime import executors
from agentruntime.bound import bound
from agentruntime.crash import crash_point
from agentruntime.exceptions import (
    Cancelled,
    ControlFlow,
    GraphChanged,
    InvalidNodeResult,
    LeaseLost,
    NodeFailed,
    NodeTimeout,
    StepError,
)
from agentruntime.graph import Command, State, ToolNode
from agentruntime.graph.context import current_execution
from agentruntime.graph.definition import BRANCHES, Goto, Onward, takes_context
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.graph.messages import Message, new_id
from agentruntime.graph.state import dump_state, field_of, join_update, state_fields
from agentruntime.lifecycle import settings
from agentruntime.lifecycle.branch_log import beginnings, defaults
from agentruntime.lifecycle.execution import Execution
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.lease import Control
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Answers, load_answers
from agentruntime.lifecycle.record import StepRecord
from agentruntime.lifecycle.results import Later, NodeResult, Waiting
from agentruntime.lifecycle.tool_calls import refuse_conflicts, run_tools
from agentruntime.lifecycle.watch import in_seconds, wait_any
from agentruntime.signals import counted


def take_step(progress: Progress, control: Control) -> NodeResult | Waiting | Later:
    """Call the next node and return what it brings. Raises `StepError`, or a signal of
    `control`.
    """
    name = progress.next_node
    node = progress.graph.nodes.get(name)
    if node is None:
        raise GraphChanged(reason=f"its next node {name!r} is gone")
    seconds = settings.node_timeout(progress.run.config)
    deadline = in_seconds(seconds)
    try:
        with bound(node=name):
            if isinstance(node, ToolNode):
                return run_tools(progress, progress.prefix + name, node, control, deadline)
            return _call_node(progress, progress.prefix + name, node, control, deadline)
    except NodeTimeout:
        counted.send(sender=None, name="node.timeouts", value=1, attributes={"node": name})
        raise


def _call_node(
    progress: Progress, name: str, node: Any, control: Control, deadline: float | None
) -> NodeResult | Waiting:
    scope = progress.scope
    was_asked = progress.version == progress.claimed_version  # only what paused the run was
    answers = Answers(scope, load_answers(progress.thread.pk, [scope])[scope] if was_asked else [])
    execution = Execution(
        progress, name, answers, deadline=deadline, attempt=max(progress.run.attempts, 1)
    )
    before = progress.state
    given = before.model_copy(update=_copies(before))
    arguments = (given, execution) if _wants_context(progress, node) else (given,)
    crash_point("P4")
    token = current_execution.set(execution)
    try:
        is_async = inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(
            getattr(node, "__call__", None)  # noqa: B004 - an object whose call is async
        )
        work = (executors.start_async if is_async else executors.start)(
            node, control.inbox, *arguments
        )
    finally:
        current_execution.reset(token)
    _await(work, execution, control)
    if execution.waits:
        scopes = [scope, *(question.scope for question in execution.questions())]
        return Waiting(execution.questions(), scopes)
    if work.error is not None:
        raise _as_step_error(work.error, name)
    leftover = (scope,) if answers.rows else ()
    return replace(read_result(work.result, name, before), leftover=leftover)


def _wants_context(progress: Progress, node: Any) -> bool:
    """As `takes_context`, which reads a signature: once per run and node."""
    known = progress.wants_context.get(progress.next_node)
    if known is None:
        known = progress.wants_context[progress.next_node] = takes_context(node)
    return known


def _copies(state: State) -> dict[str, Any]:
    """Copies of all fields: what a node does to its state in place never leaks into the
    thread's.
    """
    copies = {name: deepcopy(getattr(state, name)) for name in state_fields(type(state))}
    return {**copies, "messages": list(state.messages)}


def _await(work: executors.Work, execution: Execution, control: Control) -> None:
    """Wait for a node. A worker that is told to end cuts async work at once: it would be given up
    after the grace time anyway, and another worker can begin it now.
    """
    while not work.done:
        try:
            control.check()
            if control.draining_since and work.can_be_cancelled and execution.may_be_cut:
                raise Cancelled
        except BaseException:
            if work.give_up(lambda _: None):
                raise
            break  # it ended in this very moment: what it finished is kept
        _, overdue = wait_any(control, {work: execution.deadline})
        if overdue and work.give_up(lambda _: None):
            seconds = settings.node_timeout(execution.config) or 0
            raise NodeTimeout(node=execution.node, seconds=seconds)


def _as_step_error(error: BaseException, name: str) -> BaseException:
    if isinstance(error, StepError | ControlFlow | LeaseLost):
        return error
    return NodeFailed(
        node=name, kind=type(error).__name__, reason=readable(str(error), 1000) or "no reason given"
    )


def read_result(value: Any, name: str, before: State) -> NodeResult:
    """Return what a node's return value means. Raises `InvalidNodeResult`."""
    if value is None:
        return NodeResult()
    if isinstance(value, Command):
        messages, update = _split(dict(value.update), name)
        return NodeResult(messages=messages, update=update, goto=value.goto)
    if isinstance(value, Message):
        return NodeResult(messages=[value])
    if isinstance(value, State):
        return _whole_state(value, name, before)
    if isinstance(value, dict):
        messages, update = _split(value, name)
        return NodeResult(messages=messages, update=update)
    if isinstance(value, list | tuple) and all(isinstance(one, Message) for one in value):
        return NodeResult(messages=list(value))
    raise InvalidNodeResult(node=name, kind=type(value).__name__)


def _split(update: dict[str, Any], name: str) -> tuple[list[Message], dict[str, Any]]:
    update = dict(update)
    messages = update.pop("messages", [])
    if isinstance(messages, Message):
        messages = [messages]
    if not isinstance(messages, list | tuple) or not all(
        isinstance(one, Message) for one in messages
    ):
        raise InvalidNodeResult(node=name, kind="messages that are no list of Message")
    return list(messages), update


def _whole_state(value: State, name: str, before: State) -> NodeResult:
    """A returned state: its new messages are appended, and fields that differ replace what was
    there.
    """
    known = len(before.messages)
    if [one.id for one in value.messages[:known]] != [one.id for one in before.messages]:
        raise InvalidNodeResult(node=name, kind="a State whose earlier messages were changed")
    replaced = {
        field: getattr(value, field)
        for field in state_fields(type(value))
        if getattr(value, field) != getattr(before, field, None)
    }
    return NodeResult(messages=value.messages[known:], replaced=replaced)


def join_result(progress: Progress, result: NodeResult) -> tuple[StepRecord, State]:
    """Return the step as it is stored, and the state after it. Raises `StepError`; nothing is
    written.
    """
    name, before = progress.next_node, progress.state
    kind = type(before)
    values = join_update(before, result.update)
    for field, value in result.replaced.items():
        values[field] = field_of(kind, field).check(value)
    refuse_conflicts(dict(result.deltas), lambda one: field_of(kind, one).reducer is not None)
    for field, set_by in result.deltas.items():
        current = values.get(field, getattr(before, field))
        for _, delta in set_by:
            current = field_of(kind, field).join(current, delta)
        values[field] = current
    taken, added = progress.message_ids, set[str]()
    messages = []
    for one in result.messages:
        message = _checked(one.settled(progress.thread.pk), name)
        if message.id in taken or message.id in added:  # a model that counts its messages anew
            message = message.model_copy(update={"id": new_id()})
        added.add(message.id)
        messages.append(message)
    after = before.model_copy(update={**values, "messages": before.messages + messages})
    onward = _onward(progress, name, after, result)
    if left := left_behind(progress, onward.node, result.goto):
        values |= left
        after = after.model_copy(update=left)
    stored = {
        **progress.stored,
        **{field: field_of(kind, field).dump(value) for field, value in values.items()},
    }
    if not progress.stored:
        stored = dump_state(after)
    branches = beginnings(onward, after, progress.thread.pk)
    return StepRecord(name, onward.node, stored, messages, branches), after


def _onward(progress: Progress, name: str, after: State, result: NodeResult) -> Onward:
    try:
        return progress.graph.onward(name, after, result.goto, until=progress.until)
    except StepError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise NodeFailed(
            node=name, kind=f"{type(error).__name__} in its route", reason=str(error)
        ) from error


def left_behind(progress: Progress, follows: str, goto: Goto) -> dict[str, Any]:
    """Return the fields of the subgraphs that end with this step, at their defaults again."""
    if not progress.graph.own_fields or follows == BRANCHES:
        return {}
    source = str(goto) if progress.next_node == BRANCHES else progress.next_node
    return defaults(progress.graph.state, progress.graph.left(source, follows))


def _checked(message: Message, name: str) -> Message:
    try:
        check_json(message.model_dump(mode="json"), path="message")
        check_json(message.extra, path="message.extra")
        for call in message.tool_calls:
            check_json(call.arguments, path=f"arguments of {call.name[:80]!r}")
            check_json(call.extra, path=f"extra of {call.name[:80]!r}")
    except NotJson as error:
        raise NodeFailed(
            node=name, kind="a message that cannot be stored", reason=str(error)
        ) from None
    return message
