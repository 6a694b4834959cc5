"""`Thread`: one line of checkpoints, and the counters under whose row lock everything is
numbered.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models

from agentruntime.exceptions import ThreadNotFound
from agentruntime.models.tenancy import tenant_of


class BusyPolicy(models.TextChoices):
    """What a message does that comes while a run of its thread waits or works."""

    REJECT = "reject", "Is refused"
    QUEUE = "queue", "Waits until that run has ended"
    CANCEL = "cancel", "Ends that run"


class ThreadQuerySet(models.QuerySet["Thread"]):
    def owned_by(self, user: object) -> ThreadQuerySet:
        """The threads that `user` may see as their own."""
        return self.filter(user=user)

    def visible_to(self, user: Any) -> ThreadQuerySet:
        """The threads of the user's tenant: their own, or with the right to view threads, all."""
        if not user.is_active:
            return self.none()
        theirs = self.filter(tenant=tenant_of(user))
        return theirs if user.has_perm("agentruntime.view_thread") else theirs.filter(user=user)


class Thread(models.Model):
    """What a person talks to. Its row lock orders all writes to it: versions, messages, events."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="agent_threads",
        db_index=False,  # `thread_by_user` begins with it
    )
    tenant = models.CharField(max_length=100, blank=True, default="")
    title = models.CharField(max_length=200, blank=True, default="")
    on_busy = models.CharField(max_length=6, choices=BusyPolicy, blank=True, default="")
    head_version = models.PositiveIntegerField(default=0)
    message_count = models.PositiveIntegerField(default=0)
    event_count = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ThreadQuerySet.as_manager()

    class Meta:
        db_table = "agentruntime_thread"
        indexes = (
            models.Index(fields=["user", "-created_at"], name="thread_by_user"),
            models.Index(fields=["-created_at"], name="thread_by_age"),
        )

    def __str__(self) -> str:
        return self.title or f"Thread {self.id}"

    @classmethod
    def locked(cls, thread_id: uuid.UUID) -> Thread:
        """Return the thread with its row locked. Raises `ThreadNotFound`."""
        thread = cls.objects.select_for_update().filter(pk=thread_id).first()
        if thread is None:
            raise ThreadNotFound(thread=thread_id)
        return thread

    def save_counters(self) -> None:
        """Write the counters; the caller holds the row lock."""
        self.save(update_fields=["head_version", "message_count", "event_count"])
