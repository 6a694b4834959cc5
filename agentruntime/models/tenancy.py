"""Which tenant a user belongs to: asked of the project, never taken from a request."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from agentruntime.conf import runtime_settings


def tenant_of(user: Any) -> str:
    """Return the tenant of `user` by the setting `TENANT_OF`; "" where there is only one."""
    path = runtime_settings().TENANT_OF
    if not path or user is None or not user.pk:
        return ""
    return str(import_string(path)(user) or "")
