"""`Event`: news of a thread, numbered in commit order without gaps. Told, never relied on."""

from django.db import models

from agentruntime.models.run import Run
from agentruntime.models.thread import Thread


class Event(models.Model):
    """One thing that happened, written in the transaction in which it did."""

    id = models.BigAutoField(primary_key=True)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="events", db_index=False)
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

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"
