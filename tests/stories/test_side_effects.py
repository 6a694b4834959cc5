"""The table of side effects, start and resume in processes of their own."""

import json
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.stories]


@pytest.fixture
def process(process_environment, tmp_path):
    """Runs one verb in a process of its own; gives the run, its thread and its status."""
    environment = process_environment(redis=False, EFFECTS=str(tmp_path / "effects"))

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "tests.stories.purchase_agents", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        run_id, thread, status, *_ = done.stdout.split()[-3:] if done.stdout else ("", "", "")
        return run_id, thread, status

    return run


@pytest.fixture
def effects(tmp_path):
    def read():
        file = tmp_path / "effects"
        return file.read_text().splitlines() if file.exists() else []

    return read


def test_the_approver_is_told_once(process, effects):
    run, _, status = process("start", "story-telling", "refund order 1042")
    assert (status, effects()) == ("interrupted", ["told the approver"])
    assert process("answer", run)[2] == "completed"
    assert effects() == ["told the approver"]


def test_the_card_is_charged_once_when_the_other_tool_of_the_turn_asks(process, effects):
    run, _, status = process("start", "story-purchase", "buy it")
    assert (status, len(effects())) == ("interrupted", 1)
    assert process("answer", run)[2] == "completed"
    assert len(effects()) == 1


def test_the_card_is_charged_once_while_a_client_streams(process, effects, live_stream):
    run, _, _ = process("start", "story-purchase", "buy it")
    with live_stream(run) as types:
        assert process("answer", run)[2] == "completed"
    assert len(effects()) == 1
    assert "run.completed" in types
    assert types.count("tool.finished") == 2


def test_a_refund_under_a_reused_id_runs_once(process, effects):
    _, thread, status = process("start", "story-reuse", "charge me")
    assert status == "completed"
    assert process("start", "story-reuse", "refund me", thread)[2] == "completed"
    assert [line.split()[0] for line in effects()] == ["charged", "refunded"]


@pytest.fixture
def live_stream(live_server):
    """Follows the events of a run over HTTP while the block runs; gives the types it saw."""
    from contextlib import contextmanager

    from django.contrib.auth import get_user_model
    from django.test import Client

    @contextmanager
    def follow(run_id):
        from agentruntime.models import Run

        user = get_user_model().objects.create_user("ann", password="a-long-password-1")
        run = Run.objects.get(pk=run_id)
        run.thread.user = user
        run.thread.save(update_fields=["user"])
        Run.objects.filter(pk=run_id).update(user=user)
        client = Client()
        client.force_login(user)
        cookie = client.cookies["sessionid"].value
        request = urllib.request.Request(
            f"{live_server.url}/api/v1/runs/{run_id}/events/?after=0",
            headers={"Accept": "text/event-stream", "Cookie": f"sessionid={cookie}"},
        )
        types = []

        def read():
            with urllib.request.urlopen(request, timeout=30) as stream:
                for line in stream:
                    if line.startswith(b"data:"):
                        types.append(json.loads(line[5:])["type"])
                        if types[-1] == "run.completed":
                            return

        reader = threading.Thread(target=read)
        reader.start()
        yield types
        reader.join(20)

    return follow
