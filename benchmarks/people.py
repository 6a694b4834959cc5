"""The two users of a measurement: one who asks, another who decides."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission


def create_people(asks: str, decides: str) -> None:
    """Make both in an empty, migrated database; the second may see and decide approvals."""
    users = get_user_model().objects
    users.create(username=asks)
    second = users.create(username=decides, is_staff=True)
    names = ("decide_approval", "view_approval")
    rights = Permission.objects.filter(codename__in=names, content_type__app_label="approvals")
    second.user_permissions.add(*rights)
