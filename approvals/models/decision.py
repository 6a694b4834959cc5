"""`Decision`: what one person answered. Written once; the database refuses every change."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.models.approval import Approval


class Verdict(models.TextChoices):
    """What a person can answer."""

    APPROVE = "approve", "Approve"
    DECLINE = "decline", "Decline"


class Door(models.TextChoices):
    """Through which way the answer came."""

    ADMIN = "admin", "Admin page"
    BULK = "bulk", "Admin, among others"
    REST = "rest", "REST"
    SHELL = "shell", "Shell"
    PYTHON = "python", "Python"


class Decision(models.Model):
    """One answer of one person, and everything that an auditor needs to judge it.

    `digest` names what was agreed to, `shown_digest` what was on the page (they differ where the
    person edited the call; empty: nothing was shown, as in a shell). `is_final` says whether it
    settled the question: where several must agree, the others do not. `statement` is the text that
    the chain signs: all of this as canonical JSON. `user_id` outlives the account, so it is no
    constraint; the name stands in `by`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.PositiveBigIntegerField(unique=True)
    approval = models.ForeignKey(Approval, models.PROTECT, related_name="decisions")
    verdict = models.CharField(max_length=7, choices=Verdict)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.DO_NOTHING, related_name="+", db_constraint=False
    )
    by = models.CharField(max_length=254)
    at = models.DateTimeField()
    door = models.CharField(max_length=6, choices=Door)
    digest = models.CharField(max_length=64)
    shown_digest = models.CharField(max_length=64, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    arguments = models.JSONField(null=True, blank=True)
    seen = models.JSONField(default=dict)
    is_final = models.BooleanField(default=True)
    rule = models.JSONField(default=dict)
    rights = models.JSONField(default=dict)
    seconds_shown = models.FloatField(null=True, blank=True)
    statement = models.TextField()
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=Q(verdict__in=Verdict.values), name="decision_verdict_is_known"
            ),
            models.UniqueConstraint(
                fields=["approval"],
                condition=Q(is_final=True),
                name="one_final_decision_per_approval",
            ),
            models.UniqueConstraint(
                fields=["approval", "user", "digest", "verdict"],
                name="one_voice_per_person_and_version",
            ),
        )
        indexes = (models.Index(fields=["at"], name="decision_by_age"),)

    def __str__(self) -> str:
        return f"{self.by} {self.what} {self.at:%Y-%m-%d %H:%M}"

    @property
    def what(self) -> str:
        """The verdict as a verb in the past."""
        if self.verdict == Verdict.DECLINE:
            return "declined"
        return "approved" if self.arguments is None else "edited and approved"

    def as_body(self) -> dict[str, Any]:
        """Return the decision as every surface tells it."""
        return {
            "verdict": self.verdict,
            "by": self.by,
            "at": self.at.isoformat(),
            "reason": self.reason,
            "arguments": self.arguments,
        }
