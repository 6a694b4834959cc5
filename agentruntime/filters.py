"""By what lists may be narrowed: this list of names, and nothing else of a request."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django_filters import utils
from django_filters.rest_framework import DjangoFilterBackend, FilterSet
from rest_framework.exceptions import ValidationError

from agentruntime.models import (
    CallStatus,
    Interrupt,
    InterruptStatus,
    Run,
    RunStatus,
    ToolExecution,
)

ALWAYS = {"cursor", "page_size"}


class Backend(DjangoFilterBackend):
    """Narrows lists by the view's filter set; one object is found by its id alone."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        if view.detail:
            return queryset
        found: QuerySet[Any] = super().filter_queryset(request, queryset, view)
        return found


class Choices(django_filters.MultipleChoiceFilter):
    """Some of a few words; who sends another is told which there are."""

    def __init__(self, **options: Any) -> None:
        known = ", ".join(value for value, _ in options["choices"])
        told = f"“%(value)s” is not a valid choice; there are: {known}."
        super().__init__(error_messages={"invalid_choice": told}, **options)


class StrictFilterSet(FilterSet):
    """Refuses a parameter that it does not know, and an empty one: a slip would otherwise show
    everything.
    """

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if unknown := sorted(set(self.data) - set(self.filters) - ALWAYS):
            raise ValidationError({name: ["There is no such filter."] for name in unknown})
        if empty := sorted(name for name in self.filters if self._is_blank(name)):
            raise ValidationError({name: ["A value was expected."] for name in empty})
        found: QuerySet[Any] = super().filter_queryset(queryset)
        return found

    def _is_blank(self, name: str) -> bool:
        return name in self.data and not self.data[name].strip()

    def checked(self) -> QuerySet[Any]:
        """Return the narrowed rows. Raises `ValidationError`."""
        if not self.is_valid():
            raise utils.translate_validation(self.errors)
        return self.qs


class RunFilter(StrictFilterSet):
    """Runs by status (one or several), graph, thread and time."""

    status = Choices(choices=RunStatus.choices)
    graph = django_filters.CharFilter(max_length=100)
    thread = django_filters.UUIDFilter(field_name="thread_id")
    created_after = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_before = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Run
        fields: tuple[str, ...] = ()


class InterruptFilter(StrictFilterSet):
    """Questions by status, run and thread."""

    status = Choices(choices=InterruptStatus.choices)
    run = django_filters.UUIDFilter(field_name="run_id")
    thread = django_filters.UUIDFilter(field_name="thread_id")

    class Meta:
        model = Interrupt
        fields: tuple[str, ...] = ()


class ToolExecutionFilter(StrictFilterSet):
    """Calls of a thread by status and tool."""

    status = Choices(choices=CallStatus.choices)
    tool = django_filters.CharFilter(max_length=200)

    class Meta:
        model = ToolExecution
        fields: tuple[str, ...] = ()
