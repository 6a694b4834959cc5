"""The one door: `decide()`. Admin, REST, shell and mail link all come through here.

The answer to the runtime, the approval, the decision and its place in the chain are one
transaction. Locks are taken as everywhere: Run, Thread, Interrupt, Approval, and the chain last.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentruntime.exceptions import AlreadyAnswered
from agentruntime.graph.json_values import NotJson, check_text
from agentruntime.lifecycle.record import Pen, writing
from agentruntime.lifecycle.resume import answer_locked
from agentruntime.models import Interrupt
from agentruntime.models.transactions import durably
from approvals.edits import Edit, amount_after, apply_edit, asked_arguments, read_edit
from approvals.exceptions import (
    AlreadyAgreed,
    ApprovalError,
    ApprovalNotFound,
    DigestMismatch,
    DigestMissing,
    InvalidReason,
    NoLongerAsked,
    NotAllowed,
    UnknownVerdict,
)
from approvals.history import note, note_refused
from approvals.masking import mask
from approvals.models import Approval, Decision, Door, Outcome, Status, Verdict
from approvals.permissions import (
    Rights,
    amount_of,
    rights_of,
    voices_missing,
    why_not,
)
from approvals.record import append_decision
from approvals.snapshots import rights_then, rule_then, seen_then
from approvals.standing import agreed_so_far, check_open, lock_approval

MAX_REASON = 2000
# Doors behind which a page or a document was read; the others act on what is stored now.
SHOWS_FIRST = (str(Door.ADMIN), str(Door.BULK), str(Door.REST))
PYTHON = str(Door.PYTHON)
APPROVE, DECLINE = str(Verdict.APPROVE), str(Verdict.DECLINE)
STATUS_OF = {APPROVE: str(Status.APPROVED), DECLINE: str(Status.DECLINED)}


@dataclass(frozen=True)
class Answer:
    """What somebody wants to decide, as it came through a door."""

    approval_id: uuid.UUID
    verdict: str
    user_id: Any
    digest: str | None
    reason: str
    arguments: Any
    door: str
    seconds_shown: float | None


def decide(
    *,
    approval_id: uuid.UUID | str,
    verdict: str,
    user: Any,
    digest: str | None = None,
    reason: str | None = "",
    arguments: dict[str, Any] | None = None,
    door: str = PYTHON,
    seconds_shown: float | None = None,
) -> Decision:
    """Record what `user` answers, and let the run go on with it. Returns the stored decision.

    `digest` is the one that was shown; the doors that show something must bring it, in a shell or
    from Python it may be left out and the call as it is stored is meant. `arguments` are the
    changed arguments, or all of them; an equal repeat by the same person returns the stored
    decision. Raises an `ApprovalError`, and then nothing was changed; `ValueError` for a door that
    there is not, and for `seconds_shown` that are no number.
    """
    if door not in Door.values:
        raise ValueError(f"A door is one of {', '.join(Door.values)}, not {door!r}.")
    if seconds_shown is not None and not _is_number(seconds_shown):
        raise ValueError(f"seconds_shown is a number or None, not {seconds_shown!r}.")
    answer = Answer(
        _as_uuid(approval_id), verdict, getattr(user, "pk", None), digest,
        "" if reason is None else reason, arguments, door, seconds_shown,
    )  # fmt: skip
    try:
        return durably(lambda: _decide(answer))
    except ApprovalError as refused:
        note_refused(answer.approval_id, user, answer.door, refused)
        raise


def _decide(answer: Answer) -> Decision:
    if answer.verdict not in Verdict.values:
        raise UnknownVerdict(verdict=str(answer.verdict)[:40])
    if not isinstance(answer.reason, str):
        raise InvalidReason(reason="it is no text")
    locked = lock_approval(answer.approval_id)
    approval, interrupt = locked.approval, locked.interrupt
    rights, taken = rights_of(answer.user_id), list(approval.decisions.all())
    if rights and (stored := _equal_repeat(answer, approval, rights, taken)):
        return stored
    _check_right(rights, approval, amount_of(approval))
    assert rights is not None
    check_open(approval, interrupt)
    _check_reason(answer.reason)
    _check_digest(answer, approval)
    if interrupt is None or locked.thread is None:
        raise NoLongerAsked(became="withdrawn", at="its thread's end", told="")
    wanted = answer.arguments if answer.verdict == APPROVE else None
    edit = read_edit(wanted, approval, interrupt)
    if edit:
        _check_right(rights, approval, amount_after(edit, approval))
    if edit:
        apply_edit(approval, edit, rights)
    _check_voice(answer, approval, rights, taken)
    final = answer.verdict == DECLINE or _settles(approval, rights, edit, taken)
    decision_id = uuid.uuid4()
    if final:
        with writing(locked.thread, approval.run_id) as pen:
            _close(answer, approval, interrupt, rights, decision_id, pen)
    return _append(answer, approval, rights, edit, id=decision_id, is_final=final)


def _append(
    answer: Answer, approval: Approval, rights: Rights, edit: Edit | None, **facts: Any
) -> Decision:
    decision = append_decision(
        approval=approval,
        verdict=answer.verdict,
        user_id=rights.user_id,
        by=rights.username,
        at=approval.now,
        door=answer.door,
        digest=approval.digest,
        shown_digest=answer.digest or "",
        reason=answer.reason,
        arguments=mask(edit.arguments) if edit else None,
        seen=seen_then(approval),
        rule=rule_then(approval),
        rights=rights_then(rights, approval),
        seconds_shown=answer.seconds_shown,
        **facts,
    )
    note(approval, rights.user_id, f"{decision.what.capitalize()} ({Door(answer.door).label})")
    return decision


def _close(
    answer: Answer,
    approval: Approval,
    interrupt: Interrupt,
    rights: Rights,
    decision_id: uuid.UUID,
    pen: Pen,
) -> None:
    _answer_runtime(answer, approval, interrupt, rights, decision_id)
    outcome = Outcome.NOT_EXECUTED if answer.verdict == DECLINE else Outcome.NONE
    approval.close(STATUS_OF[answer.verdict], closed_at=approval.now, outcome=outcome)
    pen.tell(
        "approval.decided",
        approval=str(approval.pk),
        verdict=answer.verdict,
        by=rights.username,
        reason=answer.reason,
        edited=approval.is_edited,
    )


def _check_voice(
    answer: Answer, approval: Approval, rights: Rights, taken: Sequence[Decision]
) -> None:
    """Raise `AlreadyAgreed` for a second voice of one person for one version, also for one that an
    edit brings back.
    """
    voice = (rights.user_id, answer.verdict, approval.digest)
    if any((one.user_id, one.verdict, one.digest) == voice for one in taken):
        raise AlreadyAgreed(by=rights.username)


def _settles(
    approval: Approval, rights: Rights, edit: Edit | None, taken: Sequence[Decision]
) -> bool:
    """Say whether this yes is the last one that is needed."""
    amount = amount_of(approval)
    if edit is None:
        return voices_missing([*agreed_so_far(approval, taken), rights], approval, amount) == 0
    # An edit voids what others agreed to: where one voice is enough, this is it.
    return voices_missing([rights], approval, amount) == 0


def _answer_runtime(
    answer: Answer, approval: Approval, interrupt: Interrupt, rights: Rights, decision_id: uuid.UUID
) -> None:
    edited = answer.verdict == APPROVE and approval.is_edited
    value = {
        "verdict": answer.verdict,
        "digest": approval.digest,
        "arguments": {**asked_arguments(interrupt), **approval.edits} if edited else None,
        "reason": answer.reason,
        "by": rights.username,
        "decision": str(decision_id),
    }
    try:
        answer_locked(interrupt, value, user=_reference(rights))
    except AlreadyAnswered as error:
        raise NoLongerAsked(became="no longer open", at="just now", told=str(error)) from error


def _reference(rights: Rights) -> Any:
    return Interrupt._meta.get_field("answered_by").remote_field.model(pk=rights.user_id)


def _equal_repeat(
    answer: Answer, approval: Approval, rights: Rights, taken: Sequence[Decision]
) -> Decision | None:
    """Return the decision that this person has already taken with this very answer, or None."""
    for decision in taken:
        if (decision.user_id, decision.verdict) != (rights.user_id, answer.verdict):
            continue
        shown = answer.digest in (None, decision.shown_digest, decision.digest)
        if not shown or answer.reason != decision.reason:
            continue
        if decision.is_final or decision.digest == approval.digest:
            given = answer.arguments
            if given is None and decision.arguments is None:
                return decision
            if isinstance(given, dict) and given and decision.arguments is not None:
                same = (decision.arguments.get(k) == v for k, v in mask(given).items())
                if all(same):
                    return decision
    return None


def _check_right(rights: Rights | None, approval: Approval, amount: Decimal | None) -> None:
    if why := why_not(rights, approval, amount):
        raise NotAllowed(user=rights.username if rights else "Nobody", reason=why)


def _check_digest(answer: Answer, approval: Approval) -> None:
    if answer.digest is None:
        if answer.door in SHOWS_FIRST:
            raise DigestMissing()
    elif answer.digest != approval.digest:
        raise DigestMismatch()


def _check_reason(reason: str) -> None:
    try:
        check_text(reason, "reason")
    except NotJson as error:
        raise InvalidReason(reason=error.reason) from error
    if len(reason) > MAX_REASON:
        raise InvalidReason(reason=f"it has more than {MAX_REASON} characters")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _as_uuid(value: uuid.UUID | str) -> uuid.UUID:
    try:
        return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
    except ValueError:
        raise ApprovalNotFound(approval=str(value)[:60]) from None
