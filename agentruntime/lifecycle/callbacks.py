"""A result that comes in from outside, at an address that only whoever was given it knows."""

from __future__ import annotations

from typing import Any

from django.core import signing

from agentruntime.conf import runtime_settings
from agentruntime.exceptions import CallbackRefused, CallbackUnknown, JobOverdue
from agentruntime.graph.json_values import NotJson, check_json
from agentruntime.lifecycle.finish import readable
from agentruntime.lifecycle.ledger import settle
from agentruntime.lifecycle.outcomes import Outcome
from agentruntime.lifecycle.record import writing
from agentruntime.lifecycle.recording import withdraw_question
from agentruntime.lifecycle.resume import wake
from agentruntime.models import CallStatus, Run, ToolExecution
from agentruntime.models.transactions import durably

AT_WORK = (CallStatus.RUNNING, CallStatus.UNKNOWN)


def _signer() -> signing.Signer:
    return signing.Signer(salt="agentruntime.callback", sep=".")


def callback_url(execution_id: int) -> str:
    """Return the address at which the result of a call may be handed in.

    It is signed with `SECRET_KEY` and holds for as long as the call: its retries too, for they are
    the same call to whoever works on it.
    """
    return f"{runtime_settings().CALLBACK_URL.rstrip('/')}/{_signer().sign(str(execution_id))}/"


def take_callback(token: str, given: Any) -> ToolExecution:
    """Settle the call that waits at this address, and wake its run; return its row.

    `given` is {"result": JSON} or {"error": text}. What comes for a call that has its outcome
    changes nothing. Raises `CallbackUnknown` for a wrong token, `CallbackRefused`.
    """
    try:
        execution_id = int(_signer().unsign(token))
    except (signing.BadSignature, ValueError):
        raise CallbackUnknown() from None
    outcome = _read(given)
    return durably(lambda: _take(execution_id, outcome))


def _read(given: Any) -> Outcome:
    if not isinstance(given, dict) or set(given) not in ({"result"}, {"error"}):
        raise CallbackRefused(reason='it is neither {"result": ...} nor {"error": "..."}')
    if "error" in given:
        if not isinstance(given["error"], str) or not given["error"].strip():
            raise CallbackRefused(reason="error: text was expected")
        detail = readable(given["error"])
        return Outcome(CallStatus.FAILED, error={"code": "TOOL_FAILED_001", "detail": detail})
    try:
        check_json(given["result"], path="result", max_bytes=runtime_settings().MAX_RESULT_BYTES)
    except NotJson as error:
        raise CallbackRefused(reason=str(error)) from None
    return Outcome(CallStatus.SUCCEEDED, result=given["result"])


def _take(execution_id: int, outcome: Outcome) -> ToolExecution:
    found = ToolExecution.objects.filter(pk=execution_id).first()
    run = Run.objects.select_for_update().filter(pk=found.run_id).first() if found else None
    if found is None or run is None:
        raise CallbackUnknown()
    with writing(run.thread_id, run.pk) as pen:
        row = ToolExecution.objects.get(pk=execution_id)
        if row.status == CallStatus.FAILED and row.error["code"] == JobOverdue.code:
            row.save_fields(status=CallStatus.UNKNOWN)  # now it is known what it did
        if row.is_settled:
            return row
        if row.status not in AT_WORK:
            raise CallbackRefused(reason=f"the call is {row.status}")
        row = settle(pen, row, outcome)
    withdraw_question(run, row)
    wake(run, reason="called back", call_key=row.call_key)
    return row
