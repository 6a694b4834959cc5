"""`BranchStep`: what a checkpoint is for a thread, for a branch of it or for an agent in a call."""

from __future__ import annotations

from django.db import models

from agentruntime.models.run import Run
from agentruntime.models.stored_json import StoredJSON
from agentruntime.models.thread import Thread


class BranchStep(models.Model):
    """One step of a branch, or with `number` 0 its beginning. Written once, never changed.

    `opened_at` is the place that opened it: a version of the thread ("7"), a step of another branch
    ("7/0.2", the step after the second one of branch 0 of version 7), or the key of the call that
    asks an agent. `result` is what the step brought: {"messages", "changes"}; at the beginning it
    is {"given", "messages", "until"}: what the branch sees in place of the state, and where it
    ends.
    """

    id = models.BigAutoField(primary_key=True)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="branch_steps", db_index=False)
    # Found and deleted by its thread alone, as a checkpoint is.
    run = models.ForeignKey(
        Run, models.DO_NOTHING, related_name="branch_steps", db_index=False, db_constraint=False
    )
    opened_at = models.CharField(max_length=700)
    index = models.PositiveIntegerField(default=0)
    number = models.PositiveIntegerField(default=0)
    version = models.PositiveIntegerField(default=0)
    fencing_token = models.PositiveBigIntegerField(default=0)
    node = models.CharField(max_length=100, blank=True, default="")
    next_node = models.CharField(max_length=100)
    result = StoredJSON(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "agentruntime_branchstep"
        constraints = (
            models.UniqueConstraint(
                fields=["thread", "opened_at", "index", "number"], name="branch_step_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.opened_at}/{self.index}.{self.number} {self.node}"
