"""What the tests of the promises share: those of the verbs, crashes on demand, and a sound end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lifecycle.conftest import _by_hand, drive, look  # noqa: F401


@pytest.fixture(autouse=True)
def _nothing_armed() -> Iterator[None]:
    from agentruntime import crash

    crash.arm("")
    yield
    crash.arm("")


@pytest.fixture(autouse=True)
def _sound(request: pytest.FixtureRequest, _by_hand: None) -> Iterator[None]:  # noqa: F811
    """Every test of a promise ends with a history that can have happened."""
    yield
    if request.node.get_closest_marker("unsound"):
        return
    from agentruntime.invariants import find_violations

    assert list(find_violations()) == []


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], None]:
    """Let a worker die at a named point of `work`, and its lease lapse."""
    from agentruntime import crash
    from agentruntime.lifecycle import lease
    from agentruntime.models import DatabaseTime, Run

    # The process lives on; a beat that was under way must not bring the lease back.
    monkeypatch.setattr(lease.Keeper, "prolong", lambda *_: None)

    def die(point: str, work: Callable[[], Any]) -> None:
        crash.arm(f"{point}:1:raise" if ":" not in point else f"{point}:raise")
        with pytest.raises(crash.SimulatedCrash):
            work()
        Run.objects.filter(status="running").update(lease_expires_at=DatabaseTime(-1))

    return die


@pytest.fixture
def told() -> Iterator[list[tuple[str, str]]]:
    """The log lines of the runtime: (level, event)."""
    from agentruntime.signals import noticed

    lines: list[tuple[str, str]] = []

    def hear(level: str, event: str, **_: Any) -> None:
        lines.append((level, event))

    noticed.connect(hear)
    yield lines
    noticed.disconnect(hear)


@pytest.fixture
def counts() -> Iterator[dict[str, float]]:
    """What was counted, by name."""
    from agentruntime.signals import counted

    found: dict[str, float] = {}

    def hear(name: str, value: float, **_: Any) -> None:
        found[name] = found.get(name, 0) + value

    counted.connect(hear)
    yield found
    counted.disconnect(hear)
