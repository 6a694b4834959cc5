"""The first answer to a question wins, and queues the run again, in one transaction."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction

from agentruntime.crash import crash_point
from agentruntime.dispatch import ring_after_commit
from agentruntime.exceptions import AlreadyAnswered, InterruptNotFound, InvalidAnswer, WrongDoor
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.lifecycle.client_calls import check_result
from agentruntime.lifecycle.record import writing
from agentruntime.models import (
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    Run,
    RunStatus,
)
from agentruntime.models.transactions import durably
from agentruntime.schemas import check_schema


def resume_run(*, interrupt_id: uuid.UUID | str, value: Any, user: Any = None) -> Run:
    """Answer a question and return its run, which goes on by itself.

    Raises `InterruptNotFound`, `AlreadyAnswered`, `InvalidAnswer` (the question's schema, or no
    JSON) and `WrongDoor` for an approval, which is decided by `approvals.decide`.
    """
    found = _find(interrupt_id)
    if found.kind == InterruptKind.APPROVAL:
        raise WrongDoor(interrupt=found.pk)
    check_answer(found, value)
    return answer_interrupt(found.pk, value, user=user, kind=found.kind).run


def answer_interrupt(
    interrupt_id: uuid.UUID, value: Any, user: Any = None, kind: str = InterruptKind.APPROVAL
) -> Interrupt:
    """Record the answer to an open question of this kind, and queue its run.

    Locks the run, then the interrupt; a part of the caller's transaction, if there is one. Raises
    `AlreadyAnswered` for whoever comes second, `InterruptNotFound`, `WrongDoor`.
    """

    tries = 0

    def work() -> Interrupt:
        nonlocal tries
        tries += 1
        run = Run.locked(_find(interrupt_id).run_id)
        interrupt = Interrupt.objects.select_for_update().get(pk=interrupt_id)
        if interrupt.kind != kind:
            raise WrongDoor(interrupt=interrupt.pk)
        interrupt.run = run
        if tries > 1 and _is_answer(interrupt, value, user):
            return interrupt  # the last try had landed, only the answer to its COMMIT was lost
        answer_locked(interrupt, value, user)
        interrupt.refresh_from_db()
        interrupt.run = run
        return interrupt

    return durably(work)


def answer_locked(interrupt: Interrupt, value: Any, user: Any) -> None:
    """Record the answer to a question whose run (`interrupt.run`) and row are locked, and queue
    its run. Raises `AlreadyAnswered` where it is not open any more.
    """
    if interrupt.status != InterruptStatus.OPEN:
        raise AlreadyAnswered(interrupt=interrupt.pk, status=interrupt.status)
    Interrupt.objects.filter(pk=interrupt.pk).update(
        status=InterruptStatus.ANSWERED,
        answer=value,
        answered_by=user,
        answered_at=DatabaseTime(),
    )
    wake(interrupt.run, reason="answered", interrupt=str(interrupt.pk))
    crash_point("A3")


def _is_answer(interrupt: Interrupt, value: Any, user: Any) -> bool:
    who = getattr(user, "pk", None)
    return interrupt.status == InterruptStatus.ANSWERED and (
        (interrupt.answer, interrupt.answered_by_id) == (value, who)
    )


def wake(run: Run, **why: Any) -> None:
    """Queue a locked run that waits; one that works or has ended is left as it is."""
    if run.status == RunStatus.INTERRUPTED:
        run.move_to(RunStatus.QUEUED)
        with writing(run.thread_id, run.pk) as pen:
            pen.tell("run.queued", **why)
        transaction.on_commit(lambda: crash_point("A4"))
        ring_after_commit(run.pk)
    elif run.status == RunStatus.QUEUED and run.wake_at is not None:
        run.save_fields(wake_at=None)  # it need not wait for its moment any more
        ring_after_commit(run.pk)


def check_answer(interrupt: Interrupt, value: Any) -> None:
    """Raise `InvalidAnswer` if the value is no JSON or does not fit what was asked."""
    try:
        check_json(value)
        if interrupt.kind == InterruptKind.OUTCOME:
            _check_outcome(value)
        elif interrupt.kind == InterruptKind.CLIENT:
            check_result(value, interrupt.response_schema)
        elif interrupt.response_schema is not None:
            check_schema(value, interrupt.response_schema)
    except NotJson as error:
        raise InvalidAnswer(interrupt=interrupt.pk, reason=str(error)) from None


def _check_outcome(value: Any) -> None:
    outcome = value.get("outcome") if isinstance(value, dict) else None
    needed = {
        "succeeded": {"outcome", "result"},
        "failed": {"outcome", "error"},
        "retry": {"outcome"},
    }
    if not isinstance(outcome, str) or outcome not in needed:
        raise NotJson("outcome", "it is one of succeeded, failed, retry")
    if unknown := set(value) - needed[outcome]:
        raise NotJson(sorted(unknown)[0], f"not a part of an answer {outcome!r}")
    if outcome == "failed" and not isinstance(value.get("error", ""), str):
        raise NotJson("error", "text was expected")


def _find(interrupt_id: uuid.UUID | str) -> Interrupt:
    try:
        found = Interrupt.objects.filter(pk=uuid.UUID(str(interrupt_id))).first()
    except ValueError:
        found = None
    if found is None:
        raise InterruptNotFound(interrupt=str(interrupt_id)[:64])
    return found
