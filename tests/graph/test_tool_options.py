"""Options of a tool that mean nothing are refused where the tool is defined."""

from datetime import timedelta

import pytest

from agentruntime.exceptions import InvalidTool
from agentruntime.graph import ApprovalRule, Pending, tool


def pay(amount: int) -> str:
    """Pay."""
    return ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", "5"),
        ("timeout", timedelta(seconds=5)),
        ("timeout", float("nan")),
        ("retries", -1),
        ("retries", True),
        ("retry_on", "ValueError"),
        ("retry_on", KeyboardInterrupt),
        ("retry_delay", float("inf")),
        ("concurrency", 0),
        ("sequential", "no"),
        ("key_ttl", 3600),
        ("isolation", "proces"),
        ("runs", "Client"),
        ("reconcile", "ask"),
        ("approval", "yes"),
        ("timout", 5),
    ],
)
def test_an_option_that_means_nothing_is_named(name, value):
    with pytest.raises(InvalidTool, match=name):
        tool(**{name: value})(pay)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("when", True),
        ("approvers", 0),
        ("approvers", "2"),
        ("editable", "amount"),
        ("expires_in", 3600),
        ("expires_in", timedelta(0)),
        ("expires_in", timedelta(days=10**6)),
        ("on_expiry", "approve"),
        ("remind_after", 60),
        ("recheck", "open"),
        ("amount", "sum"),
    ],
)
def test_a_rule_that_means_nothing_is_named(name, value):
    with pytest.raises(InvalidTool, match=name if name != "amount" else "sum"):
        tool(approval=ApprovalRule(**{name: value}))(pay)


def test_numbers_of_seconds_may_be_whole_or_none():
    made = tool(timeout=5, retry_delay=0, retry_on=ValueError, concurrency=2)(pay)

    assert (made.timeout, made.retry_on) == (5, (ValueError,))
    assert tool(timeout=None, approval=True)(pay).approval == ApprovalRule()


@pytest.mark.parametrize(
    "job",
    [
        Pending(every="30"),
        Pending(every=timedelta(minutes=1)),
        Pending(every=None),
        Pending(every=float("nan")),
        Pending(deadline=float("inf")),
        Pending(deadline=10**400),
        Pending(deadline=0),
    ],
)
def test_a_job_that_is_to_be_asked_about_at_no_time_says_so(job):
    assert "numbers of seconds" in job.problem


def test_a_job_without_a_deadline_is_one():
    assert Pending(deadline=None).problem == Pending(every=1).problem == ""


def test_a_function_that_yields_is_no_tool():
    def rows():
        yield 1

    async def rows_too():
        yield 1

    for made in (rows, rows_too):
        with pytest.raises(InvalidTool, match="yields"):
            tool(made)
