"""Deleting a thread: everything of it goes, its questions are closed, a late write leaves
nothing.
"""

from __future__ import annotations

import uuid

from agentruntime.exceptions import ThreadNotFound
from agentruntime.lifecycle.finish import close_questions
from agentruntime.models import Run, Thread
from agentruntime.models.transactions import durably


def delete_thread(*, thread_id: uuid.UUID) -> None:
    """Delete a thread with its runs, checkpoints, messages, ledger and events.

    A worker that is in the middle of a step finds its run gone and stops. Raises `ThreadNotFound`;
    a repeat after a failure finishes the work.
    """

    tries = 0

    def work() -> None:
        nonlocal tries
        tries += 1
        runs = list(Run.objects.select_for_update().filter(thread_id=thread_id).order_by("pk"))
        thread = Thread.objects.select_for_update().filter(pk=thread_id).first()
        if thread is None and tries > 1:
            return  # the last try had landed, only the answer to its COMMIT was lost
        if thread is None:
            raise ThreadNotFound(thread=thread_id)
        for run in runs:
            close_questions(run)
        thread.delete()

    durably(work)
