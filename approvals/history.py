"""Django's own history of an approval: who did what, beside the record that auditors rely on.

Tries that were refused stand there too: who, through which door, and why not.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError
from django.utils import timezone

from approvals.exceptions import ApprovalError
from approvals.models import Approval, Door

logger = logging.getLogger("approvals")

REFUSED = "Refused ("
LATELY = timedelta(hours=1)
MAX_LATELY = 20
"""So many tries of one person at one approval are noted in this time, each kind of them once."""


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


def note_refused(approval_id: Any, user: Any, door: str, refused: ApprovalError) -> None:
    """Log that a try to decide was refused. Where a right was missing, and the approval and the
    person are known, it is noted in the approval's history too.

    Never raises: who is refused is told so, whatever becomes of the note.
    """
    user_id = getattr(user, "pk", None)
    if door != Door.SHELL:  # which says it itself, where the log may be written too
        logger.warning(
            "Decision refused: %s (approval %s, user %s, door %s)",
            refused.code, approval_id, user_id, door,
        )  # fmt: skip
    if user_id is None or refused.status not in (403, 404):
        return
    try:
        _note_once(approval_id, user_id, f"{REFUSED}{Door(door).label}): {refused}"[:500])
    except DatabaseError:
        logger.exception("A refused try could not be noted (approval %s)", approval_id)


def _note_once(approval_id: Any, user_id: Any, what: str) -> None:
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        return
    lately = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(Approval),
        object_id=str(approval_id),
        user_id=user_id,
        change_message__startswith=REFUSED,
        action_time__gte=timezone.now() - LATELY,
    ).values_list("change_message", flat=True)
    noted = list(lately[:MAX_LATELY])
    if what not in noted and len(noted) < MAX_LATELY:
        note(approval, user_id, what)
