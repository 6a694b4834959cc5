"""What a list of approvals may be narrowed by: named fields only."""

from __future__ import annotations

import django_filters

from approvals.models import Approval, Outcome, Status


class ApprovalFilter(django_filters.FilterSet):
    """`?status=pending&tool=refund&thread=...`"""

    status = django_filters.MultipleChoiceFilter(choices=Status.choices)
    outcome = django_filters.MultipleChoiceFilter(choices=Outcome.choices[1:])
    tool = django_filters.CharFilter()
    graph = django_filters.CharFilter()
    thread = django_filters.UUIDFilter(field_name="thread_id")
    run = django_filters.UUIDFilter(field_name="run_id")
    created_after = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_before = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Approval
        fields = ()
