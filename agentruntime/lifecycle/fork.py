"""A new thread from a checkpoint of another: the same state and history, and a future of its
own.
"""

from __future__ import annotations

import uuid
from typing import Any

from agentruntime.dispatch import ring_after_commit
from agentruntime.exceptions import CheckpointNotFound
from agentruntime.graph import END, get_graph
from agentruntime.graph.messages import Message as MessageValue
from agentruntime.lifecycle.record import Pen, StepRecord
from agentruntime.models import (
    BranchStep,
    Checkpoint,
    DatabaseTime,
    Message,
    Run,
    RunStatus,
    Thread,
)
from agentruntime.models.transactions import durably


def fork_thread(*, thread_id: uuid.UUID, version: int, user: Any = None) -> Run:
    """Make a thread that begins where `thread_id` was at `version`, and return its run.

    The run goes on at the node that came next then; at the end of a run there is nothing to go on
    with, and it is completed. Messages are copied under new ids, so calls get keys of their own;
    what was answered, decided or remembered by `once()` stays behind: questions are asked anew,
    and calls that were not in the history yet are made anew. The old thread is only read. Raises
    `CheckpointNotFound`, `UnknownGraph`.
    """
    return durably(lambda: _fork(thread_id, version, user))


def _fork(thread_id: uuid.UUID, version: int, user: Any) -> Run:
    origin = (
        Checkpoint.objects.select_related("thread", "run")
        .filter(thread_id=thread_id, version=version)
        .first()
    )
    if origin is None:
        raise CheckpointNotFound(thread=thread_id, version=version)
    graph = get_graph(origin.run.graph)
    thread = Thread.objects.create(
        user=user or origin.thread.user, tenant=origin.thread.tenant, title=origin.thread.title
    )
    at_its_end = origin.next_node == END
    run = Run.objects.create(
        thread=thread,
        user=thread.user,
        graph=graph.name,
        graph_fingerprint=graph.fingerprint(),
        config=origin.run.config,
        base_version=1,
        status=RunStatus.COMPLETED if at_its_end else RunStatus.QUEUED,
        finished_at=DatabaseTime() if at_its_end else None,
    )
    pen = Pen(Thread.locked(thread.pk), run.pk)
    pen.tell("run.queued", graph=run.graph, forked_from=str(thread_id), version=version)
    copies, branches = _copies(origin, thread), _branches_of(origin, thread)
    pen.append(StepRecord(origin.node, origin.next_node, origin.state, copies, branches), token=0)
    if at_its_end:
        pen.tell("run.completed", error=None)
    else:
        ring_after_commit(run.pk)
    pen.save()
    run.refresh_from_db()
    return run


def _branches_of(origin: Checkpoint, thread: Thread) -> list[dict[str, Any]]:
    """The branches that were opened at a checkpoint, at their beginnings."""
    opened = BranchStep.objects.filter(
        thread_id=origin.thread_id, opened_at=str(origin.version), number=0
    )
    rows = opened.order_by("index")
    return [
        {"node": one.node, "next_node": one.next_node, "result": _renamed(one.result, thread)}
        for one in rows
    ]


def _copies(origin: Checkpoint, thread: Thread) -> list[MessageValue]:
    rows = Message.objects.filter(
        thread_id=origin.thread_id, ordinal__lte=origin.message_count
    ).order_by("ordinal")
    return [
        row.to_value().model_copy(update={"id": str(uuid.uuid5(thread.pk, str(row.pk)))})
        for row in rows
    ]


def _renamed(result: Any, thread: Thread) -> Any:
    """A message is stored once under its id: in another thread it has another one."""
    if not isinstance(result, dict) or not result.get("messages"):
        return result
    messages = [
        {**one, "id": str(uuid.uuid5(thread.pk, str(one["id"])))} for one in result["messages"]
    ]
    return {**result, "messages": messages}
