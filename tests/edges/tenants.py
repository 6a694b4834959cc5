"""Tenants of the tests: what stands behind the @ of a user's name."""

from typing import Any


def by_name(user: Any) -> str:
    return str(user.get_username().partition("@")[2])
