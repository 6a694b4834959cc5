"""`TokenGrant`: what an API token may do. The token itself is knox's: hashed, expiring, revocable."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models

TOKEN_MODEL = getattr(settings, "KNOX_TOKEN_MODEL", "knox.AuthToken")


class TokenGrant(models.Model):
    """The scopes and the tenant of one token, fixed when it is made."""

    token = models.OneToOneField(
        TOKEN_MODEL, models.CASCADE, primary_key=True, related_name="grant"
    )
    name = models.CharField(max_length=100, blank=True, default="")
    scopes = models.JSONField(default=list)
    tenant = models.CharField(max_length=100, blank=True, default="")

    class Meta:
        db_table = "agentruntime_tokengrant"

    def __str__(self) -> str:
        return self.name or f"token {self.pk[:8]}"

    @classmethod
    def create(cls, token: Any, *, scopes: list[str], tenant: str, name: str = "") -> TokenGrant:
        """Store what `token` may do."""
        return cls.objects.create(token=token, scopes=scopes, tenant=tenant, name=name)
