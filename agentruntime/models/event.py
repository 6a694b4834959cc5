"""`Event`: news of a thread, numbered in commit order without gaps. Told, never relied on."""

from django.db import models

from agentruntime.models.indexes import BlockRange
from agentruntime.models.run import Run
from agentruntime.models.thread import Thread


class Event(models.Model):
    """One thing that happened, written in the transaction in which it did."""

    id = models.BigAutoField(primary_key=True)
    # Whoever writes an event holds the lock of its thread's row: the database need not ask again.
    thread = models.ForeignKey(
        Thread, models.CASCADE, related_name="events", db_index=False, db_constraint=False
    )
    # Found and deleted by its thread alone: a second index or constraint would cost every step.
    run = models.ForeignKey(
        Run,
        models.DO_NOTHING,
        null=True,
        related_name="events",
        db_index=False,
        db_constraint=False,
    )
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_event"
        constraints = (
            models.UniqueConstraint(fields=["thread", "seq"], name="event_seq_once_per_thread"),
        )
        indexes = (BlockRange(fields=["at"], name="event_by_age"),)

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"
