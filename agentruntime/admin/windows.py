"""The read-only windows, and how values look in them: JSON masked and indented, rows as links."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from agentruntime.conf import runtime_settings
from agentruntime.first_pages import FirstPages
from agentruntime.graph.masking import mask, mask_text
from agentruntime.graph.messages import Role
from agentruntime.graph.registry import get_graph, graph_names
from agentruntime.graph.tools import Effect
from agentruntime.models import BranchStep, Checkpoint, Event, Message, ToolExecution


def show_json(value: Any) -> SafeString:
    """Return a JSON value as an indented block, secrets masked, everything escaped."""
    masked = mask(value, runtime_settings().SECRET_FIELDS)
    return format_html("<pre>{}</pre>", json.dumps(masked, indent=2, ensure_ascii=False))


def link_to(row: Model | None, text: str = "") -> SafeString | str:
    """Return a link to the window of another row."""
    if row is None:
        return "-"
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return format_html('<a href="{}">{}</a>', reverse(name, args=[row.pk]), text or str(row))


def link_to_list(model: type[Model], text: str, **filters: Any) -> SafeString:
    """Return a link to the rows of a model that match `filters`."""
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    return format_html('<a href="{}?{}">{}</a>', reverse(name), query, text)


def one_of(column: str, title: Any, values: Callable[[], Iterable[str]]) -> type:
    """Return a filter by a column of which the values are known: Django's own looks for them in
    the whole table.
    """

    class OneOf(admin.SimpleListFilter):
        parameter_name = column

        def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
            return [(one, one) for one in values()]

        def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{column: self.value()}) if self.value() else queryset

    OneOf.title = title
    return OneOf


def known_tools() -> list[str]:
    """Return the names of all tools of the registered graphs."""
    return sorted({name for graph in graph_names() for name in get_graph(graph).tools})


class Window(admin.ModelAdmin):  # type: ignore[type-arg]
    """A model that staff may look at and nobody may change here."""

    list_per_page = 50
    paginator = FirstPages
    show_full_result_count = False
    json_fields: tuple[str, ...] = ()
    hidden_fields: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        shown = []
        for field in self.model._meta.concrete_fields:
            if field.name in self.hidden_fields:
                continue
            if field.name in self.json_fields:
                shown.append(f"shown_{field.name}")
            elif field.is_relation and field.related_model._meta.app_label == "agentruntime":
                shown.append(f"linked_{field.name}")
            else:
                shown.append(field.name)
        return shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return self.get_fields(request, obj)

    def __getattr__(self, name: str) -> Any:
        kind, _underscore, field = name.partition("_")
        if kind == "shown" and field in type(self).json_fields:
            return _named(field, lambda row: show_json(getattr(row, field)))
        if kind == "linked":
            return _named(field, lambda row: link_to(getattr(row, field)))
        raise AttributeError(name)


def _named(field: str, display: Any) -> Any:
    display.short_description = field.replace("_", " ")
    return display


@admin.register(Checkpoint)
class CheckpointAdmin(Window):
    list_display = ("__str__", "node", "next_node", "message_count", "created_at")
    json_fields = ("state",)
    search_fields = ("=thread__id", "=run__id")
    ordering = ("-id",)


@admin.register(BranchStep)
class BranchStepAdmin(Window):
    list_display = ("__str__", "node", "next_node", "thread_id", "created_at")
    json_fields = ("result",)
    search_fields = ("=thread__id", "=run__id", "=opened_at")
    ordering = ("-id",)


@admin.register(Message)
class MessageAdmin(Window):
    list_display = ("ordinal", "role", "excerpt", "thread_id", "created_at")
    list_filter = (one_of("role", _("role"), lambda: get_args(Role)),)
    json_fields = ("tool_calls", "extra")
    search_fields = ("=thread__id", "=id")
    ordering = ("thread", "ordinal")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        shown = super().get_fields(request, obj)
        return ["told" if name == "content" else name for name in shown]

    @admin.display(description=_("content"))
    def told(self, row: Message) -> str:
        if row.role != "tool":
            return row.content
        return mask_text(row.content, runtime_settings().SECRET_FIELDS)

    @admin.display(description=_("content"))
    def excerpt(self, row: Message) -> str:
        text = self.told(row) or ", ".join(call.get("name", "") for call in row.tool_calls)
        return text if len(text) <= 120 else f"{text[:120]}… ({len(text):,} characters)"


@admin.register(ToolExecution)
class ToolExecutionAdmin(Window):
    list_display = (
        "id",
        "tool",
        "status",
        "effect",
        "attempts",
        "run_link",
        "created_at",
        "finished_at",
    )
    list_filter = (
        "status",
        one_of("effect", _("effect"), lambda: get_args(Effect)),
        one_of("tool", _("tool"), known_tools),
    )
    json_fields = ("arguments", "requested_arguments", "result", "state_update", "error", "outside")
    search_fields = ("=thread__id", "=run__id", "=call_key")
    list_select_related = ("run",)
    ordering = ("-id",)

    @admin.display(description=_("run"))
    def run_link(self, row: ToolExecution) -> SafeString | str:
        return link_to(row.run, str(row.run_id)[:8])


@admin.register(Event)
class EventAdmin(Window):
    list_display = ("seq", "type", "thread_id", "run_id", "at")
    json_fields = ("data",)
    search_fields = ("=thread__id", "=run__id")
    ordering = ("-id",)
