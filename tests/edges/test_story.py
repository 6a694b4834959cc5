"""A product's back end with nothing but the API: start, follow, decide by another token."""

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from websockets.sync.client import connect

from agentruntime.tokens import create_token
from tests.readme import block

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def call(web: Any, token: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(web.url(path), data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_the_whole_story_with_two_tokens_and_a_socket(web, worker_process, person, tmp_path):
    from django.contrib.auth.models import Permission

    ann, bob = person("ann"), person("bob", is_staff=True)
    bob.user_permissions.add(*Permission.objects.filter(content_type__app_label="approvals"))
    runs = create_token(ann, ["read", "run"])[1]
    decides = create_token(bob, ["read", "decide"])[1]
    site = web(DEMO_DIR=str(tmp_path))
    if "REDIS_URL" in os.environ:
        worker_process(env={"DEMO_DIR": str(tmp_path)})

    thread = call(site, runs, "POST", "/api/v1/threads/", {})
    asked = {"graph": "support", "input": "Order 1042 arrived broken, please refund it"}
    run = call(
        site,
        runs,
        "POST",
        f"/api/v1/threads/{thread['id']}/runs/",
        asked,
        **{"Idempotency-Key": "k"},
    )
    seen: list[Any] = []
    address = site.ws(f"/ws/runs/{run['id']}/?after=0")
    with connect(address, additional_headers={"Authorization": f"Token {runs}"}) as socket:
        while True:
            event = json.loads(socket.recv(timeout=30))
            seen.append(event)
            if event["type"] == "run.interrupted":
                [waiting] = call(site, decides, "GET", "/api/v1/approvals/?status=pending")[
                    "results"
                ]
                call(
                    site,
                    decides,
                    "POST",
                    f"/api/v1/approvals/{waiting['id']}/approve/",
                    {"digest": waiting["digest"]},
                )
            if event["type"] in ("run.completed", "run.failed"):
                break
    stored = [one["seq"] for one in seen if "seq" in one]
    assert stored == list(range(1, len(stored) + 1))
    assert seen[-1]["type"] == "run.completed", seen[-1]
    messages = call(site, runs, "GET", f"/api/v1/threads/{thread['id']}/messages/")["results"]
    assert [one["ordinal"] for one in messages] == list(range(1, len(messages) + 1))
    assert "49.90" in messages[-1]["content"]


@pytest.mark.parametrize("client", ["client.py", "client.sh"])
def test_the_clients_of_the_readme_run(web, worker_process, person, tmp_path, client):
    from django.contrib.auth.models import Permission

    ann, bob = person("ann"), person("bob", is_staff=True)
    bob.user_permissions.add(*Permission.objects.filter(content_type__app_label="approvals"))
    tokens = [create_token(ann, ["read", "run"])[1], create_token(bob, ["read", "decide"])[1]]
    site = web(DEMO_DIR=str(tmp_path))
    if "REDIS_URL" in os.environ:
        worker_process(env={"DEMO_DIR": str(tmp_path)})
    file = tmp_path / client
    file.write_text(block(client))
    program = [sys.executable] if client.endswith(".py") else ["sh"]
    found = subprocess.run(
        [*program, str(file), site.url(""), *tokens, "Refund order 1042"],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "49.90" in found.stdout.splitlines()[-1], found.stdout
