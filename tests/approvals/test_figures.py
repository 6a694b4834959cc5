"""How the queue does: the figures of the dashboard against a small set that was counted by hand."""

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from approvals import figures
from approvals.admin.dashboard import HEIGHT, answers_plot, times_plot
from approvals.figures import figures_of, in_words, percentile
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 18, 12, 0, tzinfo=UTC)  # a Wednesday

# Tool, status, asked at (of 2026), seconds to its end, amount, currency, edited.
CLOSED = [
    ("refund", "approved", "03-16 09:00", 10, "20.00", "EUR", False),
    ("refund", "approved", "03-16 10:00", 60, "30.50", "EUR", True),
    ("refund", "declined", "03-17 09:00", 600, "100", "EUR", False),
    ("mail", "approved", "03-17 10:00", 3600, None, "", False),
    ("refund", "expired", "03-10 08:00", 172_800, "40", "EUR", False),
    ("refund", "declined", "03-11 08:00", 30, "5", "USD", False),
    ("refund", "cancelled", "03-12 08:00", 5, "7", "EUR", False),
    ("mail", "superseded", "03-13 08:00", 5, None, "", False),
]
FIRST = datetime(2025, 12, 29, tzinfo=UTC)  # the Monday eleven weeks before this one


def row(tool, status, at, seconds=None, amount=None, currency="", edited=False, **more):
    made = Approval.objects.create(
        tool=tool,
        status=status,
        amount=amount and Decimal(amount),
        currency=currency,
        edits={"amount": amount} if edited else {},
        run_id=uuid.uuid4(),
        thread_id=uuid.uuid4(),
        closed_at=None if seconds is None else at + timedelta(seconds=seconds),
        **more,
    )
    Approval.objects.filter(pk=made.pk).update(created_at=at)
    return made


def decided(approval, number, seconds_shown):
    Decision.objects.create(
        number=number, approval=approval, verdict="approve", user_id=number, by=f"p{number}",
        at=NOW, door="admin", digest=str(number), seconds_shown=seconds_shown, statement="",
        previous_hash="", hash=str(number), is_final=False,
    )  # fmt: skip


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(figures.timezone, "now", lambda: NOW)
    for tool, status, at, *more in CLOSED:
        moment = datetime.strptime(f"2026-{at}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        first = row(tool, status, moment, *more)
    row("mail", "approved", FIRST, 7200)
    row("mail", "approved", FIRST - timedelta(seconds=1), 1)  # before the first week
    row("mail", "approved", NOW, 1, tenant="another")
    row("refund", "pending", NOW - timedelta(hours=1), expires_at=NOW - timedelta(minutes=30))
    row("refund", "pending", NOW - timedelta(days=40), expires_at=NOW + timedelta(days=1))
    for number, seconds in enumerate((1.0, 2.99, 3.0, 50.0, None), start=1):
        decided(first, number, seconds)


def test_every_figure_is_the_one_that_was_counted_by_hand(counted):
    found = figures_of("")
    assert (found.waiting, found.overdue, found.oldest) == (2, 1, NOW - timedelta(days=40))
    whole = found.whole
    assert (whole.asked, whole.approved, whole.edited, whole.declined, whole.expired) == (
        11, 4, 1, 2, 1,
    )  # fmt: skip
    assert (whole.other, whole.decided) == (2, 6)
    assert sorted(whole.seconds) == [10, 30, 60, 600, 3600, 7200]
    assert (whole.median, whole.p95) == (60, 7200)
    assert (whole.declined_share, whole.edited_share, whole.expired_share) == ("29%", "14%", "14%")
    assert found.money == [
        ("EUR", Decimal("50.50"), Decimal(100)), ("USD", Decimal(0), Decimal(5)),
    ]  # fmt: skip
    assert (found.hasty, found.read, found.hasty_share) == (2, 4, "50%")
    assert [(one.name, one.asked, one.approved, one.median) for one in found.kinds] == [
        ("refund", 8, 2, 30), ("mail", 3, 2, 3600),
    ]  # fmt: skip
    weeks = {one.name: (one.approved, one.declined, one.expired) for one in found.weeks}
    assert len(weeks) == figures.WEEKS
    assert {name: week for name, week in weeks.items() if any(week)} == {
        "2025-12-29": (1, 0, 0), "2026-03-09": (0, 1, 1), "2026-03-16": (3, 1, 0),
    }  # fmt: skip


def test_the_plots_show_these_figures_to_scale(counted):
    weeks = figures_of("").weeks
    answers = answers_plot(weeks)
    assert (answers.top, answers.middle, answers.is_empty) == ("4", "2", False)
    heights = {block.told: block.height for block in answers.blocks}
    assert heights == {
        "2025-12-29: 1 approved": 42, "2026-03-09: 1 declined": 42, "2026-03-09: 1 expired": 42,
        "2026-03-16: 3 approved": 124, "2026-03-16: 1 declined": 42,
    }  # fmt: skip
    assert all(block.y >= 0 and block.y + block.height <= HEIGHT for block in answers.blocks)
    told = [block.told for block in times_plot(weeks).blocks]
    assert "2026-03-16: median 60 s" in told
    assert "2026-03-16: 95th percentile 60 min" in told


def test_the_page_prints_them(counted, client, person):
    lead = person("lead", "approvals.view_dashboard", "approvals.decide_refund")
    client.force_login(lead)
    page = client.get("/admin/approvals/approval/dashboard/")
    text = " ".join(page.content.decode().split())
    for shown in ("50.5", "29%", "2 of 4 on the page", "under 3 seconds", "<dd>11</dd>", "60 s"):
        assert shown in text, shown


def test_nothing_to_count_is_shown_as_nothing(client, person):
    client.force_login(person("lead", "approvals.view_dashboard", "approvals.decide_refund"))
    text = client.get("/admin/approvals/approval/dashboard/").content.decode()
    assert "Nothing to plot yet." in text
    assert "Nothing was asked yet." in text


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (21, 0.95, 20)],
)  # fmt: skip
def test_a_percentile_is_one_of_the_values(count, share, rank):
    assert percentile(range(1, count + 1), share) == rank
    assert percentile([], share) is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, "–"), (0, "0 s"), (2.5, "2.5 s"), (60, "60 s"), (120, "2 min"), (7200, "2 h"),
     (172_800, "2 d")],
)  # fmt: skip
def test_durations_are_told_in_the_unit_of_a_person(seconds, told):
    assert in_words(seconds) == told
