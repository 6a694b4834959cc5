"""How the queue does: a page of figures and plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from approvals.figures import WEEKS, Tally, figures_of, in_words
from approvals.permissions import rights_of

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 200, 40, 24


@dataclass(frozen=True)
class Block:
    """One rectangle of a plot, and what it stands for."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    told: str


@dataclass(frozen=True)
class Plot:
    """Columns over weeks, with a scale that starts at zero."""

    blocks: list[Block]
    labels: list[tuple[int, str]]
    top: str
    middle: str
    is_empty: bool


def show(admin: Any, request: HttpRequest) -> HttpResponse:
    """Print the figures of one tenant. Needs `approvals.view_dashboard`."""
    rights = rights_of(request.user)
    if rights is None or not request.user.has_perm("approvals.view_dashboard"):
        raise PermissionDenied
    figures = figures_of(rights.tenant)
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "media": admin.media,
        "title": _("How the queue does"),
        "figures": figures,
        "weeks_count": WEEKS,
        "by_week": answers_plot(figures.weeks),
        "times": times_plot(figures.weeks),
    }
    return TemplateResponse(request, "admin/approvals/approval/dashboard.html", context)


def answers_plot(weeks: list[Tally]) -> Plot:
    """Stack what was approved, declined and expired per week."""
    top = max([one.approved + one.declined + one.expired for one in weeks] or [0])
    blocks = []
    for index, week in enumerate(weeks):
        base = HEIGHT - BOTTOM
        for kind in ("approved", "declined", "expired"):
            count = getattr(week, kind)
            height = _height(count, top)
            if height:
                base -= height
                told = f"{week.name}: {count} {kind}"
                blocks.append(Block(kind, _x(index, weeks), base, _width(weeks), height, told))
    return Plot(blocks, _labels(weeks), str(top), f"{top / 2:g}", top == 0)


def times_plot(weeks: list[Tally]) -> Plot:
    """Put the median and the 95th percentile of the time to a decision side by side per week."""
    top = max([one.p95 or 0 for one in weeks] or [0])
    half = _width(weeks) // 2
    blocks = []
    for index, week in enumerate(weeks):
        for place, (kind, seconds) in enumerate((("approved", week.median), ("expired", week.p95))):
            height = _height(seconds or 0, top)
            if height:
                name = "median" if place == 0 else "95th percentile"
                told = f"{week.name}: {name} {in_words(seconds)}"
                x = _x(index, weeks) + place * half
                blocks.append(Block(kind, x, HEIGHT - BOTTOM - height, half - 1, height, told))
    return Plot(blocks, _labels(weeks), in_words(top), in_words(top / 2), top == 0)


def _height(value: float, top: float) -> int:
    return max(2, round(value / top * (HEIGHT - BOTTOM - 10))) if value and top else 0


def _width(weeks: list[Tally]) -> int:
    return max(4, (WIDTH - LEFT) // max(1, len(weeks)) - 8)


def _x(index: int, weeks: list[Tally]) -> int:
    return LEFT + 4 + index * ((WIDTH - LEFT) // max(1, len(weeks)))


def _labels(weeks: list[Tally]) -> list[tuple[int, str]]:
    return [(_x(index, weeks), week.name[5:]) for index, week in enumerate(weeks) if index % 2 == 0]
