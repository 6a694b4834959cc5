"""The published document is valid, and the API keeps to it whatever is sent."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from agentruntime.tokens import create_token

# Whether data that the document allows is always taken is not asked: no document can say that a
# text has no NUL, or that an address leads somewhere.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "use_after_free",
    "unsupported_method",
    "missing_required_header",
    "negative_data_rejection",
]
# A header that no document names is not ours to refuse, and of the paths these alone name one.
CONFIG = "\n".join(
    [
        "[checks]",
        "enabled = false",
        *(f"{name}.enabled = true" for name in CHECKS),
        "[[operations]]",
        'include-path-regex = "/events/$"',
        "checks.negative_data_rejection.enabled = false",
    ]
)
# Would end the token that everything else is tried with.
LEFT_OUT = "/api/v1/tokens/revoke/"


def test_the_document_is_valid_and_complete(tmp_path):
    file = tmp_path / "schema.yml"
    call_command(
        "spectacular", "--api-version=v1", "--validate", "--fail-on-warn", f"--file={file}"
    )
    assert "/api/v1/approvals/{id}/approve/" in file.read_text()


def test_it_is_served_with_its_page(client, db):
    assert client.get("/api/schema/").status_code == 200
    assert b"swagger" in client.get("/api/docs/").content.lower()


@pytest.mark.slow
@pytest.mark.database("sqlite")
@pytest.mark.django_db(transaction=True)
def test_the_api_keeps_to_its_document(web, ann, tmp_path):
    limits = dict.fromkeys(("login", "login-address", "token", "run", "decide"), "1000000/min")
    site = web(
        runtime={"RATE_LIMITS": limits},
        DEBUG="false",
        HTTPS="false",
        SECRET_KEY="for-this-test-only-" * 4,
        DEMO_DIR=str(tmp_path),
    )
    _, token = create_token(ann, ["read", "run"])
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    found = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            site.url("/api/schema/"),
            f"--header=Authorization: Token {token}",
            f"--exclude-path={LEFT_OUT}",
            "--max-examples=6",
            "--max-time=20",
            "--continue-on-failure",
            "--no-color",
            "--seed=1",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    assert "Stateful" in found.stdout
