"""Floor: a step through the ORM as one would first write it: six round trips.

`atomic`, `select_for_update`, `create`, `bulk_create`, `update`.
"""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from benchmarks.contenders import django_cursor
from benchmarks.contenders import floor_sql as sql
from benchmarks.contenders.floor import StaleState


class Contender(django_cursor.Contender):
    """The tables of the other floors, through models."""

    def load(self) -> None:
        super().load()
        from benchmarks.contenders import floor_models  # needs Django configured

        self.models = floor_models

    def open_thread(self, thread: str) -> None:
        self.models.Head.objects.create(thread=thread)

    def put(self, thread: str, version: int, content: str, role: str = "assistant") -> int:
        models, after = self.models, version + 1
        with transaction.atomic():
            head = models.Head.objects.select_for_update().get(pk=thread)
            if head.version != version:
                raise StaleState(thread)
            models.Checkpoint.objects.create(
                thread=thread, version=after, state=sql.state_of(version)
            )
            models.Message.objects.bulk_create(
                [models.Message(thread=thread, ordinal=after, role=role, content=content)]
            )
            models.Head.objects.filter(pk=thread).update(
                version=after, next_node=f"node {version}", changed_at=timezone.now()
            )
        return after

    def history(self, thread: str) -> list[tuple[str, str]]:
        rows = self.models.Message.objects.filter(thread=thread).order_by("ordinal")
        return list(rows.values_list("role", "content"))

    def record(self, thread: str, calls: list[str]) -> None:
        result = self.models.Result
        result.objects.bulk_create(
            [result(thread=thread, call=call, value={"ok": True}) for call in calls],
            ignore_conflicts=True,
        )

    def decide(self, thread: str) -> int:
        with transaction.atomic():
            head = self.models.Head.objects.select_for_update().get(pk=thread)
            head.question = {**head.question, "approved": True}
            head.save(update_fields=["question"])
        return head.version
