"""`Chain`: the end of the chain of decisions, under whose row lock the next one is appended."""

from __future__ import annotations

from django.db import models

GENESIS = "0" * 64


class Chain(models.Model):
    """One row: how many decisions there are, and the hash of the last."""

    name = models.CharField(max_length=20, primary_key=True)
    length = models.PositiveBigIntegerField(default=0)
    head = models.CharField(max_length=64, default=GENESIS)

    def __str__(self) -> str:
        return f"{self.name}: {self.length}"

    @classmethod
    def locked(cls) -> Chain:
        """Return the chain with its row locked: the last lock of a deciding transaction."""
        found = cls.objects.select_for_update().filter(pk="decisions").first()
        if found is None:
            cls.objects.get_or_create(pk="decisions")
            found = cls.objects.select_for_update().get(pk="decisions")
        return found

    def append(self, head: str) -> None:
        """Move the end on by one; the caller holds the lock."""
        self.length, self.head = self.length + 1, head
        self.save(update_fields=["length", "head"])
