"""What the runtime announces, as it concerns approvals. All inside the runtime's transactions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.dispatch import receiver
from django.utils.dateparse import parse_datetime

from agentruntime.lifecycle.ledger import database_now
from agentruntime.lifecycle.record import tell
from agentruntime.models import (
    CallStatus,
    DatabaseTime,
    Interrupt,
    InterruptKind,
    InterruptStatus,
    ToolExecution,
)
from agentruntime.signals import (
    call_settled,
    gated_call_starting,
    interrupt_closed,
    interrupt_opened,
    run_ended,
)
from approvals.edits import storable_amount
from approvals.masking import mask
from approvals.models import Approval, Outcome, Status
from approvals.permissions import amount_of, policy_for, read_amount, voices_missing
from approvals.standing import agreed_so_far

OUTCOME_OF = {
    CallStatus.SUCCEEDED: Outcome.EXECUTED,
    CallStatus.FAILED: Outcome.FAILED,
    CallStatus.UNKNOWN: Outcome.UNKNOWN,
    CallStatus.RUNNING: Outcome.UNKNOWN,
    CallStatus.DECLINED: Outcome.NOT_EXECUTED,
    CallStatus.CANCELLED: Outcome.NOT_EXECUTED,
}


@receiver(interrupt_opened, dispatch_uid="approvals.opened")
def insert_approval(interrupt: Interrupt, **_: Any) -> None:
    """Put an approval before people; an older question about the same call is superseded by it."""
    if interrupt.kind == InterruptKind.OUTCOME:
        _of_call(interrupt.tool_execution_id).update(
            outcome=Outcome.UNKNOWN, outcome_at=DatabaseTime()
        )
    if interrupt.kind != InterruptKind.APPROVAL:
        return
    approval = _new_approval(interrupt)
    older = Approval.objects.select_for_update().filter(
        tool_execution_id=interrupt.tool_execution_id, outcome=Outcome.NONE
    )
    anew = list(older.exclude(status__in=(Status.DECLINED, Status.SUPERSEDED)))
    approval.save(force_insert=True)
    for one in anew:
        one.close(
            Status.SUPERSEDED,
            closed_at=one.closed_at or DatabaseTime(),
            outcome=Outcome.NOT_EXECUTED,
            superseded_by=approval,
        )
    tell(interrupt.thread_id, interrupt.run_id, [("approval.requested", {
        "approval": str(approval.pk), "interrupt": str(interrupt.pk), "tool": approval.tool,
        "title": approval.title, "digest": approval.digest,
    })])  # fmt: skip


def _new_approval(interrupt: Interrupt) -> Approval:
    payload = interrupt.payload
    rule = payload.get("rule") or {}
    policy = policy_for(payload["tool"], rule)
    shown = mask(payload["arguments"])
    requester = interrupt.run.user
    now = database_now()
    return Approval(
        interrupt=interrupt,
        title=payload.get("title") or "",
        tool=payload["tool"],
        call_key=payload.get("call_key") or "",
        graph=payload.get("graph") or interrupt.run.graph,
        node=payload.get("node") or "",
        run_id=interrupt.run_id,
        thread_id=interrupt.thread_id,
        tool_execution_id=interrupt.tool_execution_id,
        tenant=interrupt.thread.tenant,
        requester=requester,
        requester_name=requester.get_username() if requester else "",
        digest=payload["digest"],
        arguments=shown,
        asked_digest=payload["digest"],
        asked_arguments=shown,
        rule=rule,
        permission=policy.permission,
        group=policy.group,
        approvers=policy.approvers,
        amount=storable_amount(read_amount(rule.get("amount"))),
        currency=str(rule.get("currency") or "")[:20],
        target=str(rule.get("target") or ""),
        expires_at=interrupt.expires_at or _moment(payload.get("due_at")),
        notify_at=now,
        remind_at=_later(now, rule.get("remind_after")),
        escalate_at=_later(now, rule.get("escalate_after")),
    )


def _moment(text: str | None) -> Any:
    return parse_datetime(text) if text else None


def _later(now: Any, seconds: float | None) -> Any:
    return None if seconds is None else now + timedelta(seconds=float(seconds))


@receiver(interrupt_closed, dispatch_uid="approvals.closed")
def close_approval(interrupt: Interrupt, **_: Any) -> None:
    """Say of an approval that it ended without a decision: expired, withdrawn, or asked anew."""
    approval = Approval.objects.select_for_update().filter(interrupt_id=interrupt.pk).first()
    if approval is None or not approval.is_pending:
        return
    if interrupt.status == InterruptStatus.EXPIRED:
        approval.close(Status.EXPIRED, outcome=Outcome.NOT_EXECUTED)
        tell(interrupt.thread_id, interrupt.run_id, [
            ("approval.expired", {"approval": str(approval.pk), "by": "system"})
        ])  # fmt: skip
        return
    anew = isinstance(interrupt.answer, dict) and "superseded_by" in interrupt.answer
    status = Status.SUPERSEDED if anew else Status.CANCELLED
    approval.close(status, outcome=Outcome.NOT_EXECUTED)


@receiver(call_settled, dispatch_uid="approvals.settled")
def note_outcome(execution: ToolExecution, **_: Any) -> None:
    """Say of an approved call what became of it."""
    if not execution.is_gated:
        return
    outcome = OUTCOME_OF.get(execution.status)
    if outcome == Outcome.FAILED and not execution.attempts:
        outcome = Outcome.NOT_EXECUTED
    if outcome is not None:
        error = execution.error or {}
        _of_call(execution.pk).update(
            outcome=outcome,
            outcome_at=DatabaseTime(),
            outcome_detail=str(mask(error).get("detail") or "")[:2000],
        )


@receiver(gated_call_starting, dispatch_uid="approvals.starting")
def recheck_right(interrupt: Interrupt, **_: Any) -> str | None:
    """Refuse the start if the yes would not be given today: a right revoked, a limit lowered."""
    approval = Approval.objects.filter(interrupt_id=interrupt.pk).first()
    if approval is None or approval.status != Status.APPROVED:
        return "Not executed: there is no approval for this call."
    if (interrupt.answer or {}).get("digest") != approval.digest:
        return "Not executed: the approval is for another call."
    if voices_missing(agreed_so_far(approval), approval, amount_of(approval)):
        return (
            "Not executed: it was approved, but who approved it may not decide this any more."
            " It can be asked again."
        )
    return None


@receiver(run_ended, dispatch_uid="approvals.ended")
def note_loose_ends(run: Any, **_: Any) -> None:
    """Say of approved calls that the end of the run overtook what became of them."""
    if not run.has_asked:
        return
    open_ones = Approval.objects.filter(
        thread_id=run.thread_id, run_id=run.pk, status=Status.APPROVED, outcome=Outcome.NONE
    )
    for approval in open_ones:
        call = ToolExecution.objects.filter(pk=approval.tool_execution_id).first()
        if call is not None and call.is_settled:
            note_outcome(execution=call)
            continue
        started = call is not None and call.attempts > 0
        Approval.objects.filter(pk=approval.pk).update(
            outcome=Outcome.UNKNOWN if started else Outcome.NOT_EXECUTED, outcome_at=DatabaseTime()
        )


def _of_call(execution_id: int | None) -> Any:
    return Approval.objects.filter(tool_execution_id=execution_id, status=Status.APPROVED)
