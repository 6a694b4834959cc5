"""Django's own history of an approval: who did what, beside the record that auditors rely on."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType

from approvals.models import Approval


def note(approval: Approval, user_id: Any, what: str) -> None:
    """Add a line to the history of an approval, inside the current transaction."""
    LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(Approval),
        object_id=str(approval.pk),
        object_repr=str(approval)[:200],
        action_flag=CHANGE,
        change_message=what[:500],
    )
