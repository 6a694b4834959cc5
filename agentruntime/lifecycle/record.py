"""Writing to a thread: everything one transaction adds, numbered under the thread's row lock."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import StaleState
from agentruntime.graph.masking import mask
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.models import BranchStep, Checkpoint, Event, Message, Thread
from agentruntime.models.append_statement import append
from agentruntime.models.step_statement import Added, is_supported
from agentruntime.signals import committed, recorded


@dataclass(frozen=True)
class StepRecord:
    """What one step adds to its thread: a checkpoint and the messages that came with it.

    `messages` are settled already (`Message.settled`), `state` is plain JSON. `branches` are the
    beginnings of those that it opens, in order.
    """

    node: str
    next_node: str
    state: dict[str, Any]
    messages: list[MessageValue] = field(default_factory=list)
    branches: list[dict[str, Any]] = field(default_factory=list)


# The pens of the `writing` blocks that this thread of execution is inside of.
_open_pens: ContextVar[tuple[Pen, ...]] = ContextVar("open_pens", default=())


class Pen:
    """Collects what a transaction adds to a thread whose row it has locked; `save` writes it."""

    def __init__(self, thread: Thread, run_id: uuid.UUID | None) -> None:
        self.thread, self.run_id = thread, run_id
        self._was_at = thread.head_version, thread.message_count
        self._token = 0
        self._events: list[Event] = []
        self._steps: list[StepRecord] = []
        self._branch_steps: list[BranchStep] = []

    def tell(self, kind: str, /, **data: Any) -> None:
        """Add an event; `data` is JSON-like, what is secret in it is masked."""
        self.thread.event_count += 1
        self._events.append(
            Event(
                thread_id=self.thread.pk,
                run_id=self.run_id,
                seq=self.thread.event_count,
                type=kind,
                data=mask(data, runtime_settings().SECRET_FIELDS),
            )
        )

    def expect(self, version: int) -> None:
        """Raise `StaleState` unless the thread's head is at `version`."""
        if self.thread.head_version != version:
            raise StaleState(
                thread=self.thread.pk, expected=version, found=self.thread.head_version
            )

    def append(self, step: StepRecord, token: int) -> None:
        """Add a checkpoint at the head version + 1 with its messages, and tell of the messages."""
        assert self.run_id is not None, "a checkpoint belongs to a run"
        self._token = token
        self._steps.append(step)
        self.thread.head_version += 1
        self.thread.message_count += len(step.messages)
        for message in step.messages:
            self.tell("message.added", **news_of(message))
        for index, beginning in enumerate(step.branches):
            self.add_to_branch(str(self.thread.head_version), index, 0, token, **beginning)

    def add_to_branch(
        self, opened_at: str, index: int, number: int, token: int, **columns: Any
    ) -> None:
        """Add a step of the branch `index` that was opened at this place; 0 is its beginning."""
        assert self.run_id is not None
        self._branch_steps.append(
            BranchStep(
                thread_id=self.thread.pk,
                run_id=self.run_id,
                opened_at=opened_at,
                index=index,
                number=number,
                version=self.thread.head_version,
                fencing_token=token,
                **columns,
            )
        )

    def save(self) -> None:
        """Write what was collected, and have the news told after the commit."""
        if not self._events and not self._steps and not self._branch_steps:
            return
        events = [{"type": event.type, "data": event.data} for event in self._events]
        added = Added(*rows_of(self._steps), events)
        if is_supported():
            append(self.thread, self.run_id, self._token, added)
        else:
            self._save_by_orm(added)
        BranchStep.objects.bulk_create(self._branch_steps)
        recorded.send(sender=None, thread=self.thread, events=self._events)
        news = {
            "thread_id": self.thread.pk,
            "run_id": self.run_id,
            "seq": self.thread.event_count,
            "types": [event.type for event in self._events],
        }
        transaction.on_commit(lambda: committed.send(sender=None, **news))
        self._was_at = self.thread.head_version, self.thread.message_count
        self._events, self._steps, self._branch_steps = [], [], []

    def _save_by_orm(self, added: Added) -> None:
        version, ordinal = self._was_at
        place: dict[str, Any] = {"thread_id": self.thread.pk}
        step: dict[str, Any] = {"run_id": self.run_id, "fencing_token": self._token}
        checkpoints = [
            {**row, "version": version + n, "message_count": ordinal + row["messages"]}
            for n, row in enumerate(added.checkpoints, 1)
        ]
        messages = [
            {**row, "ordinal": ordinal + n, "version": version + row["step"]}
            for n, row in enumerate(added.messages, 1)
        ]
        Checkpoint.objects.bulk_create(
            Checkpoint(**place, **step, **_without("messages", row)) for row in checkpoints
        )
        Message.objects.bulk_create(
            Message(**place, **{**_without("step", row), "id": uuid.UUID(row["id"])})
            for row in messages
        )
        Event.objects.bulk_create(self._events)
        if self.thread._state.adding:
            self.thread.save(force_insert=True)  # a new one is written once, with its counters
        else:
            self.thread.save_counters()


def _without(name: str, row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


@contextmanager
def writing(thread: Thread | uuid.UUID, run_id: uuid.UUID | None) -> Iterator[Pen]:
    """Lock the thread, unless it is given locked, and write what the block adds to it. Inside of a
    transaction.

    Where this transaction is writing to the thread already, the block adds to that.
    """
    outer = _open_pen(thread.pk if isinstance(thread, Thread) else thread)
    if outer is not None:
        yield outer
        return
    pen = Pen(thread if isinstance(thread, Thread) else Thread.locked(thread), run_id)
    reset = _open_pens.set((*_open_pens.get(), pen))
    try:
        yield pen
    finally:
        _open_pens.reset(reset)
    pen.save()


def _open_pen(thread_id: uuid.UUID) -> Pen | None:
    return next((pen for pen in _open_pens.get() if pen.thread.pk == thread_id), None)


def tell(
    thread_id: uuid.UUID, run_id: uuid.UUID | None, events: Iterable[tuple[str, dict[str, Any]]]
) -> None:
    """Add events to a thread inside of the current transaction. Nothing if the thread is gone.

    Where this transaction is writing to the thread already (a receiver of a signal is called from
    there), the events take their place among what is being written.
    """
    if (outer := _open_pen(thread_id)) is not None:
        for kind, data in events:
            outer.tell(kind, **data)
        return
    thread = Thread.objects.select_for_update().filter(pk=thread_id).first()
    if thread is None:
        return
    pen = Pen(thread, run_id)
    for kind, data in events:
        pen.tell(kind, **data)
    pen.save()


def news_of(message: MessageValue) -> dict[str, Any]:
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
    }


def rows_of(
    steps: Sequence[StepRecord],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the checkpoints and the messages of steps as the rows that `Added` wants."""
    checkpoints: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for number, step in enumerate(steps, 1):
        messages += [{"step": number, **Message.columns_of(one)} for one in step.messages]
        checkpoints.append(
            {
                "node": step.node,
                "next_node": step.next_node,
                "state": step.state,
                "messages": len(messages),
            }
        )
    return checkpoints, messages
