"""What comes in from outside: its messages and state fields, and the first step they make."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agentruntime.exceptions import AgentRuntimeError, InvalidInput
from agentruntime.graph import StateGraph
from agentruntime.graph.definition import BRANCHES, START
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.graph.state import (
    dump_state,
    first_problem,
    join_update,
    load_state,
    state_fields,
)
from agentruntime.lifecycle.branch_log import beginnings
from agentruntime.lifecycle.history import close_calls_within, close_open_calls, last_turn
from agentruntime.lifecycle.record import StepRecord
from agentruntime.models import Checkpoint, Message, Thread

LEFT = "the run ended before it"


def read_input(given: Any) -> tuple[list[MessageValue], dict[str, Any]]:
    """Return the messages and the state update that an input means. Raises `InvalidInput`.

    Only user and system messages come in from outside: calls and results cannot be forged.
    """
    if isinstance(given, str):
        given = {"messages": [given]} if given.strip() else {}
    if not isinstance(given, Mapping):
        raise InvalidInput(reason="it is neither text nor an object")
    update = dict(given)
    listed = update.pop("messages", [])
    if isinstance(listed, str | MessageValue | Mapping):
        listed = [listed]
    if not isinstance(listed, list | tuple):
        raise InvalidInput(reason="messages: a list was expected")
    messages = [_read_message(one, f"messages[{n}]") for n, one in enumerate(listed)]
    if not messages and not update:
        raise InvalidInput(reason="it holds no message and no state field")
    return messages, update


def _read_message(given: Any, path: str) -> MessageValue:
    if isinstance(given, str):
        given = {"role": "user", "content": given}
    if isinstance(given, MessageValue):
        given = given.model_dump()
    try:
        check_json(given, path=path)
        message = MessageValue.model_validate(given)
    except NotJson as error:
        raise InvalidInput(reason=str(error)) from None
    except ValidationError as error:
        raise InvalidInput(reason=f"{path}: {first_problem(error)}") from None
    if message.role not in ("user", "system") or message.tool_calls or message.tool_call_id:
        raise InvalidInput(reason=f"{path}: only user and system messages come in from outside")
    # An id from outside counts within its thread only: nobody takes another thread's.
    return message.model_copy(update={"id": f"input:{message.id}"})


def taken_id(messages: Sequence[MessageValue], thread_id: uuid.UUID) -> str | None:
    """Return an id that two of these messages bear, or that a message of the thread bears already;
    None if each can be added.
    """
    ids = [one.settled(thread_id).id for one in messages]
    taken = Message.objects.filter(pk__in=ids).values_list("pk", flat=True).first()
    twice = next((one for one in ids if ids.count(one) > 1), None)
    return str(taken) if taken else twice


def first_step(
    graph: StateGraph,
    messages: list[MessageValue],
    update: Mapping[str, Any],
    thread: Thread,
    *,
    begins: bool = True,
) -> StepRecord:
    """Return the input as a checkpoint of its own: what it adds, and the node that it enters at.

    Closes the calls that the run before left open, if the run `begins` now. Raises `InvalidInput`.
    """
    at_head = Checkpoint.objects.filter(thread=thread, version=thread.head_version)
    head = at_head.first() if thread.head_version else None
    own = {name for fields in graph.own_fields.values() for name in fields}
    known = state_fields(graph.state).keys() - own  # no subgraph is under way any more
    stored = {name: value for name, value in (head.state if head else {}).items() if name in known}
    closing = _close_left(thread, head) if begins and head is not None else []
    added = [message.settled(thread.pk) for message in [*closing, *messages]]
    try:
        state = load_state(graph.state, stored, added)
        for name, value in join_update(state, update).items():
            setattr(state, name, value)
        onward = graph.onward(START, state)
        branches = beginnings(onward, state, thread.pk)
        return StepRecord("", onward.node, dump_state(state), added, branches)
    except AgentRuntimeError as error:
        raise InvalidInput(reason=str(error).rstrip(".")) from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # a route or reducer of the graph
        reason = f"the graph cannot begin with it ({type(error).__name__}: {str(error)[:300]})"
        raise InvalidInput(reason=reason) from error


def _close_left(thread: Thread, head: Checkpoint) -> list[MessageValue]:
    closing = close_open_calls(thread.pk, last_turn(thread.pk), LEFT)
    if closing or head.next_node == BRANCHES:  # it ended in the middle of something
        close_calls_within(head.run_id, LEFT)
    return closing
