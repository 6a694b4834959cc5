"""The record in the admin: read-only, searched and exported by who holds the right."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from approvals.models import Decision
from approvals.permissions import rights_of


@admin.register(Decision)
class DecisionAdmin(admin.ModelAdmin):
    """Decisions as they were taken. Nothing can be added, changed or deleted, by anybody."""

    list_display = ("number", "at", "by", "verdict", "approval", "door", "is_final")
    list_filter = ("verdict", "door", "is_final")
    search_fields = ("by", "reason", "approval__title", "approval__target")
    date_hierarchy = "at"
    list_select_related = ("approval",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> Any:
        rights = rights_of(request.user)
        return (
            super().get_queryset(request).filter(approval__tenant=rights.tenant if rights else "")
        )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-number",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
