"""What the processes do of which one is killed: start a run, work it off, answer what it asks."""

from __future__ import annotations

import uuid

ROUNDS = 60


def work(effect: str, key: str) -> None:
    """Start the run of this key, if nobody has, and work on it until it has ended."""
    from agentruntime.lifecycle import start_run

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    for _ in range(ROUNDS):
        run.refresh_from_db()
        if run.has_ended:
            return
        deliver(run.pk)
        answer_all(run)
    raise AssertionError(f"run {run.pk} is still {run.status} after {ROUNDS} rounds")


def deliver(run_id: uuid.UUID) -> None:
    """What a worker does with a message: the actor, the ack."""
    from agentruntime.actors import broker, execute_run
    from agentruntime.lifecycle.recover import sweep

    for found in {run_id, *sweep()}:
        execute_run(str(found))
    broker.emit_after("ack", None)


def answer_all(run: object) -> None:
    """Answer whatever the run asks, with what the bank's books say."""
    from agentruntime.lifecycle import resume_run
    from agentruntime.models import Interrupt

    for asked in Interrupt.objects.filter(run=run, status="open"):
        if asked.kind == "approval":
            decide_it(asked)
        elif asked.kind == "outcome":
            resume_run(interrupt_id=asked.pk, value=what_happened(asked))
        else:
            resume_run(interrupt_id=asked.pk, value="yes")


def decide_it(asked: object) -> None:
    from django.contrib.auth import get_user_model

    from agentruntime.models import DatabaseTime
    from approvals import due
    from approvals.decide import decide
    from approvals.models import Notice

    Notice.objects.filter(status="due").update(due_at=DatabaseTime(-1))
    due.sweep()
    boss = get_user_model().objects.get(username="crash-boss")
    decide(approval_id=asked.approval.pk, verdict="approve", user=boss)


def what_happened(asked: object) -> dict[str, str]:
    from tests.faults.bank import was_carried_out

    known = was_carried_out(asked.payload["idempotency_key"])
    if known:
        return {"outcome": "succeeded", "result": known["receipt"]}
    return {"outcome": "retry"}


def expire(effect: str, key: str) -> None:
    """Let the questions of the run expire, and sweep."""
    from agentruntime.lifecycle import start_run
    from agentruntime.lifecycle.recover import sweep
    from agentruntime.models import DatabaseTime, Interrupt

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    for _ in range(ROUNDS):
        run.refresh_from_db()
        if run.has_ended:
            return
        deliver(run.pk)
        Interrupt.objects.filter(run=run, status="open").update(expires_at=DatabaseTime(-1))
        sweep()


def stop(effect: str, key: str) -> None:
    """Ask the run to stop while it is claimed; it hears that and ends."""
    from agentruntime.lifecycle import start_run, stop_run
    from agentruntime.lifecycle.claim import claim_run
    from agentruntime.lifecycle.loop import _hold

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    run.refresh_from_db()
    claim = None if run.has_ended else claim_run(run.pk)
    if claim is not None:
        stop_run(run_id=run.pk)
        claim.run.refresh_from_db()
        _hold(claim)
