"""By what the queue can be narrowed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from agentruntime.graph.registry import graph_names
from agentruntime.models import StatementTime
from approvals.models import Approval, Status
from approvals.permissions import rights_of
from approvals.queue import gated_tools, waits_for


class QueueFilter(admin.SimpleListFilter):
    """What waits (the default), what waits for me, what is late, what is done."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("mine", _("Waiting for me")),
            ("claimed", _("Claimed by me")),
            ("overdue", _("Overdue")),
            ("closed", _("Closed")),
            ("all", _("Everything")),
        ]

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        first, *others = super().choices(changelist)
        yield {**first, "display": _("Waiting")}
        yield from others

    def queryset(self, request: Any, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        pending = queryset.filter(status=Status.PENDING)
        match self.value():
            case "all":
                return queryset
            case "mine":
                rights = rights_of(request.user)
                return pending.filter(waits_for(rights)) if rights else pending.none()
            case "claimed":
                return pending.filter(claimed_by_id=request.user.pk)
            case "overdue":
                return pending.filter(expires_at__lt=StatementTime())
            case "closed":
                return queryset.exclude(status=Status.PENDING)
        return pending


class StatusFilter(admin.SimpleListFilter):
    """What became of the closed ones."""

    title = _("answer")
    parameter_name = "answer"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        if request.GET.get(QueueFilter.parameter_name) not in ("closed", "all"):
            return []
        return [one for one in Status.choices if one[0] != Status.PENDING]

    def queryset(self, request: Any, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class _ByColumn(admin.SimpleListFilter):
    """By what the registered graphs know; to look for values in the table would read all of it."""

    def queryset(self, request: Any, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        return queryset.filter(**{self.parameter_name: self.value()}) if self.value() else queryset


class KindFilter(_ByColumn):
    title = _("kind")
    parameter_name = "tool"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(one, one) for one in gated_tools()]


class AgentFilter(_ByColumn):
    title = _("agent")
    parameter_name = "graph"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(one, one) for one in graph_names()]


class AmountFilter(admin.SimpleListFilter):
    """How much is at stake."""

    title = _("amount")
    parameter_name = "amount"
    BANDS = {"none": None, "50": (None, 50), "500": (50, 500), "more": (500, None)}

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("50", _("Up to 50")),
            ("500", _("50 to 500")),
            ("more", _("Above 500")),
            ("none", _("No amount")),
        ]

    def queryset(self, request: Any, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if self.value() not in self.BANDS:
            return queryset
        band = self.BANDS[self.value()]
        if band is None:
            return queryset.filter(amount__isnull=True)
        above, up_to = band
        if above is not None:
            queryset = queryset.filter(amount__gt=Decimal(above))
        return queryset if up_to is None else queryset.filter(amount__lte=Decimal(up_to))
