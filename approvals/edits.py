"""Editing a call before it is approved: what may be changed, and what runs then."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentruntime.exceptions import InvalidArguments
from agentruntime.lifecycle.gate import check_edit
from agentruntime.models import Interrupt
from approvals.exceptions import InvalidEdit
from approvals.masking import is_secret, mask
from approvals.models import Approval
from approvals.permissions import Rights, read_amount


@dataclass(frozen=True)
class Edit:
    """The call as it would run: all of its arguments, what people changed, its digest."""

    arguments: dict[str, Any]
    changed: dict[str, Any]
    digest: str


def read_edit(arguments: Any, approval: Approval, interrupt: Interrupt) -> Edit | None:
    """Return the edit that came with a yes, or None where nothing is changed by it.

    `arguments` are the changed ones, or all of them. Raises `InvalidEdit`.
    """
    if arguments is None:
        return None
    if not isinstance(arguments, dict) or not arguments:
        raise InvalidEdit(reason="an object with the changed arguments was expected.")
    asked = asked_arguments(interrupt)
    before = {**asked, **approval.edits}
    given = {
        name: value
        for name, value in arguments.items()
        if not (name in before and is_secret(name) and value == mask({name: before[name]})[name])
    }
    try:
        after, digest = check_edit(interrupt, {**before, **given})
    except InvalidArguments as error:
        raise InvalidEdit(reason=str(error)) from error
    touched = {name for name in {*after, *before} if after.get(name) != before.get(name)}
    if forbidden := sorted(touched - set(approval.editable)):
        raise InvalidEdit(reason=f"{', '.join(forbidden)} may not be changed.")
    if secret := sorted(name for name in touched if is_secret(name)):
        raise InvalidEdit(reason=f"{', '.join(secret)} is masked and may not be changed here.")
    if not touched:
        return None
    changed = {name: value for name, value in after.items() if value != asked.get(name)}
    return Edit(after, changed, digest)


def apply_edit(approval: Approval, edit: Edit, rights: Rights) -> None:
    rule = dict(approval.rule)
    name = rule.get("amount_argument")
    rule.pop("edited_amount", None)  # an edit may bring the first amount back
    if name in edit.changed:
        rule["edited_amount"] = str(edit.arguments[name])
    changes: dict[str, Any] = {
        "edits": edit.changed,
        "arguments": mask(edit.arguments),
        "digest": edit.digest,
        "rule": rule,
        "editor_id": rights.user_id,
    }
    amount = read_amount(rule.get("edited_amount", rule.get("amount")))
    if amount is not None:
        changes["amount"] = storable_amount(amount)
    approval.save_fields(**changes)


def amount_after(edit: Edit, approval: Approval) -> Decimal | None:
    name = approval.rule.get("amount_argument")
    found = [read_amount(edit.arguments.get(name))] if name else []
    asked = read_amount(approval.rule.get("amount"))
    return max((one for one in (*found, asked) if one is not None), default=None)


def asked_arguments(interrupt: Interrupt) -> dict[str, Any]:
    """Return the arguments that the agent wanted, unmasked."""
    asked: dict[str, Any] = (interrupt.payload or {})["arguments"]
    return asked


def storable_amount(amount: Decimal | None) -> Decimal | None:
    """Return an amount as its column takes it, for lists and sums; None where it is too large."""
    if amount is None or abs(amount) >= Decimal(10) ** 20:
        return None
    return amount.quantize(Decimal("0.000001")) if amount.as_tuple().exponent else amount
