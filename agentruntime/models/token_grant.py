"""`TokenGrant`: what an API token may do. The token itself is knox's: hashed, expiring."""

from __future__ import annotations

from django.db import models


class TokenGrant(models.Model):
    """The scopes and the tenant of one token, fixed when it is made.

    It names the token by its digest and not by a foreign key: knox's model can be swapped, and a
    migration would then depend on a setting that a project need not have.
    """

    digest = models.CharField(max_length=128, primary_key=True)
    name = models.CharField(max_length=100, blank=True, default="")
    scopes = models.JSONField(default=list)
    tenant = models.CharField(max_length=100, blank=True, default="")

    class Meta:
        db_table = "agentruntime_tokengrant"

    def __str__(self) -> str:
        return self.name or f"token {self.digest[:8]}"

    @classmethod
    def of(cls, digest: str) -> TokenGrant | None:
        """Return the grant of a token; None for one that was made without."""
        return cls.objects.filter(pk=digest).first()
