"""SIGKILL at named points, a third of them; `python -m tests.faults.crashes` does all and more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_worker_may_die_at_any_named_point(process_environment):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.crashes", "--every", "3", "--seed", "0"],
        cwd=ROOT,
        env=process_environment(redis=False),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert ", 0 violations, 0 points missed" in done.stdout


def test_every_point_of_the_list_is_somewhere_in_the_code():
    from tests.faults import crashes

    named = {point for points in crashes.POINTS.values() for point in points} | {*crashes.SPECIAL}
    places = ("agentruntime", "approvals", "tests/faults")
    sources = [file for place in places for file in (ROOT / place).rglob("*.py")]
    code = "".join(file.read_text() for file in sources)
    assert [point for point in sorted(named) if f'crash_point("{point}")' not in code] == []
