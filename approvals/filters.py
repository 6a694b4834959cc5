"""What a list of approvals may be narrowed by: named fields only."""

from __future__ import annotations

from typing import Any

import django_filters

from approvals.models import Approval, Outcome, Status


class Choices(django_filters.MultipleChoiceFilter):
    """Some of a few words; who sends another is told which there are."""

    def __init__(self, **options: Any) -> None:
        known = ", ".join(value for value, _ in options["choices"])
        told = f"“%(value)s” is not a valid choice; there are: {known}."
        super().__init__(error_messages={"invalid_choice": told}, **options)


class ApprovalFilter(django_filters.FilterSet):
    """`?status=pending&tool=refund&thread=...`"""

    status = Choices(choices=Status.choices)
    outcome = Choices(choices=Outcome.choices[1:])
    tool = django_filters.CharFilter()
    graph = django_filters.CharFilter()
    thread = django_filters.UUIDFilter(field_name="thread_id")
    run = django_filters.UUIDFilter(field_name="run_id")
    created_after = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_before = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Approval
        fields = ()
