"""What is wrong with `APPROVALS`, said at the start."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.checks import Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from approvals.conf import approval_settings
from approvals.permissions import band_from

RULE_NAMES = {"permission", "group", "approvers", "limits"}
BAND_NAMES = {"up_to", "permission", "group", "currency", "approvers"}


@register
def check_settings(**_: Any) -> list[Any]:
    """Check names, rules and addresses."""
    try:
        settings = approval_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="approvals.E001")]
    found: list[Any] = []
    for tool, rule in settings.RULES.items():
        found += _check_rule(tool, rule)
    told = settings.MAIL or settings.WEBHOOKS or settings.SLACK
    if told and not settings.SITE_URL:
        found.append(
            Warning(
                "Notices are sent, but APPROVALS['SITE_URL'] is empty: their links lead nowhere.",
                id="approvals.W001",
            )
        )
    return found


def _check_rule(tool: str, rule: Any) -> list[Any]:
    place = f"APPROVALS['RULES'][{tool!r}]"
    if unknown := sorted(set(rule) - RULE_NAMES):
        return [Error(f"{place} has no {', '.join(unknown)}.", id="approvals.E002")]
    for band in rule.get("limits", ()):
        if unknown := sorted(set(band) - BAND_NAMES):
            return [Error(f"{place}: a limit has no {', '.join(unknown)}.", id="approvals.E003")]
        try:
            made = band_from(band)
        except (InvalidOperation, ValueError, TypeError):
            return [Error(f"{place}: a limit cannot be read: {band!r}.", id="approvals.E004")]
        if made.up_to is not None and made.up_to < Decimal(0):
            return [Error(f"{place}: a limit is below zero.", id="approvals.E005")]
        if not (made.group or made.permission or rule.get("permission") or rule.get("group")):
            return [
                Error(
                    f"{place}: a limit names nobody, so it would hold for everybody.",
                    id="approvals.E006",
                )
            ]
    return []
