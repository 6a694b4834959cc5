"""`RateWindow`: how often somebody called within one span of time; the count is the database's."""

from __future__ import annotations

from django.db import models
from django.db.models import F


class RateWindow(models.Model):
    """One caller, one kind of call, one span. Its count never passes the limit."""

    id = models.BigAutoField(primary_key=True)
    key = models.CharField(max_length=200)
    starts_at = models.PositiveBigIntegerField(help_text="Seconds since 1970, UTC")
    count = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "agentruntime_ratewindow"
        constraints = (
            models.UniqueConstraint(fields=["key", "starts_at"], name="one_count_per_rate_window"),
        )
        indexes = (models.Index(fields=["starts_at"], name="rate_window_by_age"),)

    def __str__(self) -> str:
        return f"{self.key} {self.count}"

    @classmethod
    def take(cls, key: str, starts_at: int, limit: int) -> bool:
        """Count one call and return True, or return False where `limit` calls were counted.

        The test and the count are one statement, so parallel callers cannot pass together.
        """
        place = cls.objects.filter(key=key, starts_at=starts_at)
        if place.filter(count__lt=limit).update(count=F("count") + 1):
            return True
        # Full, or not there yet. Asking which would be a race with whoever inserts it now.
        cls.objects.bulk_create([cls(key=key, starts_at=starts_at)], ignore_conflicts=True)
        return bool(place.filter(count__lt=limit).update(count=F("count") + 1))

    @classmethod
    def forget_before(cls, moment: int) -> int:
        """Delete the windows that began before `moment`; return how many there were."""
        return cls.objects.filter(starts_at__lt=moment).delete()[0]
