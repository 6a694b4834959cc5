"""How the queue does, as numbers: counted over some weeks, read in three queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from approvals.conf import approval_settings
from approvals.models import Approval, Decision, Status

WEEKS = 12
MAX_ROWS = 50_000


@dataclass
class Tally:
    """What became of a group of approvals: a kind, a week, or all of them."""

    name: str
    asked: int = 0
    approved: int = 0
    edited: int = 0
    declined: int = 0
    expired: int = 0
    other: int = 0
    seconds: list[float] = field(default_factory=list)

    def add(self, approval: Approval) -> None:
        self.asked += 1
        match approval.status:
            case Status.APPROVED:
                self.approved += 1
                self.edited += bool(approval.edits)
            case Status.DECLINED:
                self.declined += 1
            case Status.EXPIRED:
                self.expired += 1
            case Status.PENDING:
                return
            case _:
                self.other += 1
                return
        if approval.status != Status.EXPIRED and approval.closed_at:
            self.seconds.append((approval.closed_at - approval.created_at).total_seconds())

    @property
    def decided(self) -> int:
        return self.approved + self.declined

    @property
    def median(self) -> float | None:
        return percentile(self.seconds, 0.5)

    @property
    def p95(self) -> float | None:
        return percentile(self.seconds, 0.95)

    def share(self, count: int) -> str:
        closed = self.decided + self.expired
        return f"{count / closed:.0%}" if closed else "–"

    @property
    def declined_share(self) -> str:
        return self.share(self.declined)

    @property
    def edited_share(self) -> str:
        return self.share(self.edited)

    @property
    def expired_share(self) -> str:
        return self.share(self.expired)


@dataclass
class Figures:
    """What the dashboard shows of one tenant."""

    waiting: int
    oldest: datetime | None
    overdue: int
    whole: Tally
    kinds: list[Tally]
    weeks: list[Tally]
    money: list[tuple[str, Decimal, Decimal]]
    hasty: int
    read: int
    cut: bool
    hasty_seconds: float

    @property
    def hasty_share(self) -> str:
        return f"{self.hasty / self.read:.0%}" if self.read else "–"


def figures_of(tenant: str) -> Figures:
    """Count the approvals of this week and the weeks before it, and what waits now."""
    now = timezone.now()
    first_day = now - timedelta(weeks=WEEKS - 1, days=now.weekday())
    since = first_day.replace(hour=0, minute=0, second=0, microsecond=0)
    recent = Approval.objects.filter(tenant=tenant, created_at__gte=since)
    fields = ("status", "edits", "created_at", "closed_at", "tool", "amount", "currency")
    rows = list(recent.order_by("-created_at").only(*fields)[: MAX_ROWS + 1])
    waiting = Approval.objects.filter(tenant=tenant).pending()
    waits = list(waiting.order_by("created_at").values_list("created_at", "expires_at"))
    whole, kinds, weeks, money = _tallies(rows[:MAX_ROWS], now)
    shown = Decision.objects.filter(
        approval__tenant=tenant, at__gte=since, seconds_shown__isnull=False
    )
    return Figures(
        waiting=len(waits),
        oldest=waits[0][0] if waits else None,
        overdue=sum(1 for _, until in waits if until and until < now),
        whole=whole,
        kinds=sorted(kinds.values(), key=lambda one: -one.asked),
        weeks=[weeks[key] for key in sorted(weeks)],
        money=[(currency, *sums) for currency, sums in sorted(money.items())],
        hasty=shown.filter(seconds_shown__lt=approval_settings().FATIGUE_SECONDS).count(),
        read=shown.count(),
        cut=len(rows) > MAX_ROWS,
        hasty_seconds=approval_settings().FATIGUE_SECONDS,
    )


def _tallies(rows: Sequence[Approval], now: datetime) -> tuple[Any, Any, Any, Any]:
    whole = Tally("all")
    kinds: dict[str, Tally] = {}
    weeks = {key: Tally(key) for key in _week_names(now)}
    money: dict[str, list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for row in rows:
        whole.add(row)
        kinds.setdefault(row.tool, Tally(row.tool)).add(row)
        weeks.setdefault(week_of(row.created_at), Tally(week_of(row.created_at))).add(row)
        if row.amount is not None and row.status in (Status.APPROVED, Status.DECLINED):
            money[row.currency][row.status == Status.DECLINED] += row.amount
    return whole, kinds, weeks, money


def _week_names(now: datetime) -> list[str]:
    return [week_of(now - timedelta(weeks=back)) for back in range(WEEKS - 1, -1, -1)]


def week_of(moment: datetime) -> str:
    """Return the Monday of a moment's week, as a date."""
    return (moment - timedelta(days=moment.weekday())).strftime("%Y-%m-%d")


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` of the values lie (nearest rank), or None."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered) + 0.4999) - 1))]


def in_words(seconds: float | None) -> str:
    """Return a duration in the unit that a person would use."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            count = seconds / size
            return f"{round(count, 1 if count < 10 else None):g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or not seconds else f"{seconds:.1f} s"
