"""The environment: a bad value stops the start with a sentence that names its variable."""

import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentruntime.checks import policies_fit, providers_fit
from agentruntime.conf import runtime_settings
from agentruntime.graph import agent_tool, create_agent, register, tool
from agentruntime.graph.registry import unregister
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
        ("REDIS_URL", "redis://[::1/0"),
        ("ALLOWED_HOSTS", "agents.example.org,https://agents.example.org"),
        ("ALLOWED_HOSTS", "agents.example.org/"),
        ("ALLOWED_HOSTS", "[::1]:8000"),
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
@pytest.mark.parametrize("port", ["port", "99999"])
def test_a_port_that_is_none_is_not_told_as_a_wrong_scheme(port):
    ended = manage("check", REDIS_URL=f"redis://host:{port}/0")

    assert ended.stderr.strip() == "REDIS_URL must have a port from 0 to 65535."


@pytest.mark.slow
def test_outside_debug_a_secret_is_needed():
    ended = manage("check", DEBUG="false")

    assert ended.returncode == 2
    assert ended.stderr.startswith("SECRET_KEY must ")


@pytest.mark.slow
def test_a_database_that_is_away_is_a_sentence(tmp_path):
    ended = manage("migrate", DATABASE_URL=f"sqlite:///{tmp_path}/none/db.sqlite3")

    assert ended.returncode == 1
    assert ended.stderr.startswith("The database of DATABASE_URL cannot be reached: unable to open")
    assert "Traceback" not in ended.stderr


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


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], r"AGENTRUNTIME must be a dict, not list\."),
        ({"NONSENSE": 1}, r"AGENTRUNTIME has no setting named NONSENSE\."),
        ({"LEASE_SECONDS": "6"}, r"AGENTRUNTIME\['LEASE_SECONDS'\] must be a number, not str\."),
        ({"MAX_CLAIMS": True}, r"MAX_CLAIMS'\] must be a whole number, not bool\."),
        ({"SECRET_FIELDS": "password"}, r"SECRET_FIELDS'\] must be a list, not str\."),
        ({"EMBEDDED_WORKER": "no"}, r"EMBEDDED_WORKER'\] must be True or False or None, not str"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(settings, given, told):
    settings.AGENTRUNTIME = given

    with pytest.raises(ImproperlyConfigured, match=told):
        runtime_settings()


def test_settings_may_be_whole_numbers_and_lists(settings):
    settings.AGENTRUNTIME = {"LEASE_SECONDS": 6, "SECRET_FIELDS": ["pin"], "EVENT_DAYS": None}

    assert runtime_settings().SECRET_FIELDS == ["pin"]


@pytest.mark.parametrize(
    "options", [{"timout": 5}, {"effect": "Once"}, {"approval": "yes"}, {"concurrency": 0}]
)
def test_what_the_host_says_of_a_tool_is_checked_at_the_start(settings, options):
    settings.AGENTRUNTIME = {"TOOLS": {"lookup_order": {"timeout": 5.0}, "refund": options}}

    found = policies_fit()

    assert [one.id for one in found] == ["agentruntime.E002"]
    assert "'refund'" in found[0].msg
    assert next(iter(options)) in found[0].msg


def test_what_it_says_of_the_tools_of_an_inner_agent_is_checked_too(settings):
    @tool
    def look() -> str:
        """Look."""
        return ""

    inner = create_agent(model="openai:none", tools=[look])
    register("outer", create_agent(model="openai:none", tools=[agent_tool(inner, "ask", "Ask.")]))
    try:
        settings.AGENTRUNTIME = {"TOOLS": {"look": {"retries": -1}}}
        assert "'look'" in policies_fit()[0].msg
    finally:
        unregister("outer")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("MODEL_PROVIDERS", {"ours": {"adress": "x"}}, "['ours'] has no setting named adress"),
        ("MODEL_PROVIDERS", {"ours": "http://x"}, "['ours'] must be a dict, not str"),
        (
            "MODEL_PROVIDERS",
            {"ours": {"api_key": None}},
            "['api_key'] must be a text, not NoneType",
        ),
        ("MODEL_PROVIDERS", {"ours": {"factory": "a.b"}}, "must be a function or None, not str"),
        ("MODEL_PROVIDERS", {"our:s": {"base_url": "http://x"}}, "a provider called 'our:s'"),
        ("MODEL_OPTIONS", {"attempt": 3}, "has no setting named attempt"),
        ("MODEL_OPTIONS", {"providers": {}}, "has no setting named providers"),
        ("MODEL_OPTIONS", {"attempts": "3"}, "['attempts'] must be a whole number, not str"),
        ("MODEL_OPTIONS", {"attempts": 0}, "attempts must be at least 1, not 0"),
        ("MODEL_OPTIONS", {"longest_wait": float("nan")}, "longest_wait must be at least 0"),
    ],
)
def test_what_the_host_says_of_models_is_checked_at_the_start(settings, name, given, said):
    settings.AGENTRUNTIME = {name: given}

    found = providers_fit()

    assert [one.id for one in found] == ["agentruntime.E003"]
    assert f"AGENTRUNTIME['{name}']" in found[0].msg
    assert said in found[0].msg


def test_providers_of_every_kind_may_be_said(settings):
    settings.AGENTRUNTIME = {
        "MODEL_PROVIDERS": {
            "local": {"base_url": "http://127.0.0.1:1/v1", "headers": {"X-Team": "a"}},
            "groq": {"api_key": "k"},
            "own": {"factory": print},
        },
        "MODEL_OPTIONS": {"attempts": 2, "first_wait": 1, "max_tokens": None},
    }

    assert providers_fit() == []
