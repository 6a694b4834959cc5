"""The environment: a bad value stops the start with a sentence that names its variable."""

import os
import subprocess
import sys

import pytest

from tests.processes import ROOT


def manage(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    names = ("DATABASE_URL", "REDIS_URL", "DEBUG", "SECRET_KEY", "ALLOWED_HOSTS", "HTTPS")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "-W", "error", ROOT / "manage.py", *command],
        env=inherited | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://host/name"),
        ("DATABASE_URL", "postgresql://host"),
        ("DATABASE_URL", "postgresql://user:pa55word@host:port/name"),
        ("REDIS_URL", "localhost:6379"),
        ("DEBUG", "perhaps"),
        ("HTTPS", "perhaps"),
        ("OPENAI_BASE_URL", "api"),
    ],
)
def test_a_bad_value_stops_the_start_and_is_named_but_not_repeated(name, value):
    ended = manage("check", **{name: value})

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(f"{name} must ")
    assert "pa55word" not in ended.stderr


@pytest.mark.slow
def test_outside_debug_a_secret_is_needed():
    ended = manage("check", DEBUG="false")

    assert ended.returncode == 2
    assert ended.stderr.startswith("SECRET_KEY must ")


@pytest.mark.slow
def test_a_pool_needs_a_size_above_zero():
    ended = manage("check", DATABASE_URL="postgresql://host/name", DATABASE_POOL_SIZE="0")

    assert ended.stderr.startswith("DATABASE_POOL_SIZE must ")


@pytest.mark.slow
def test_with_a_secret_and_hosts_the_deployment_check_finds_nothing():
    secret = "".join(chr(33 + number) for number in range(60))
    ended = manage(
        "check", "--deploy", DEBUG="false", SECRET_KEY=secret, ALLOWED_HOSTS="agents.example.org"
    )

    assert ended.returncode == 0, ended.stderr
    assert "no issues" in ended.stdout + ended.stderr
