"""`Checkpoint`: the immutable state of a thread at a version, with the node that comes next."""

from django.db import models

from agentruntime.models.run import Run
from agentruntime.models.stored_json import StoredJSON
from agentruntime.models.thread import Thread


class Checkpoint(models.Model):
    """The small state (without messages) after one step. Written once, never changed."""

    id = models.BigAutoField(primary_key=True)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="checkpoints", db_index=False)
    version = models.PositiveIntegerField()
    # Found and deleted by its thread alone: a second index or constraint would cost every step.
    run = models.ForeignKey(
        Run, models.DO_NOTHING, related_name="checkpoints", db_index=False, db_constraint=False
    )
    fencing_token = models.PositiveBigIntegerField(default=0)
    node = models.CharField(max_length=100, blank=True, default="")
    next_node = models.CharField(max_length=100)
    state = StoredJSON(default=dict)
    message_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_checkpoint"
        constraints = (
            models.UniqueConstraint(
                fields=["thread", "version"], name="checkpoint_version_once_per_thread"
            ),
        )

    def __str__(self) -> str:
        return f"{self.thread_id} v{self.version}"
