"""What a model is given is checked in each test, and no real one is asked: here it is seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentruntime.graph import END, START, Message, State, StateGraph, create_agent, tool
from tests.agents import agent, call, registered
from tests.processes import ROOT
from tests.startup.sitecustomize import NOTED

ASK = """
from types import SimpleNamespace
import django
django.setup()
from agentruntime.graph import Message
from agentruntime.lifecycle.spending import ModelCall
run = SimpleNamespace(graph="elsewhere", config={})
ModelCall(SimpleNamespace(run=run), "", [Message.tool("r", tool_call_id="a")], [])
"""


@pytest.fixture
def noted():
    """What was noted so far; that does not fail this test."""

    def read():
        return file.read_text() if file.exists() else ""

    file = Path(os.environ[NOTED])
    yield read
    file.unlink(missing_ok=True)


@tool
def look_up() -> str:
    """Look."""
    return "seen"


def without_results(messages):
    return [one for one in messages if one.role != "tool"]


def test_a_prompt_that_lacks_a_result_is_noted(drive, noted):
    with agent([look_up], [call("look_up")], context=without_results) as name:
        assert drive(name).status == "completed"
    assert "testing: the calls ['call_1'] have no result" in noted()


def test_two_tools_of_one_name_are_noted(drive, noted):
    async def ask(state, ctx):
        async with ctx.model_call([Message.user("x")], [look_up, look_up]):
            return None

    graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)
    with registered(graph) as name:
        assert drive(name).status == "completed"
    assert "the tool name 'look_up' occurs twice" in noted()


def test_another_process_notes_too(process_environment, noted):
    command = [sys.executable, "-c", ASK]
    subprocess.run(command, cwd=ROOT, env=process_environment(), check=True, timeout=60)
    assert "elsewhere: message 0: the result 'a' belongs to no open call" in noted()


def test_no_run_of_the_suite_reaches_a_real_provider(drive, settings):
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "OPENAI_API_KEY": "sk-canary"}
    with registered(create_agent(model="openai:gpt-5-mini")) as name:
        run = drive(name)
    assert (run.status, run.error_code) == ("failed", "MODEL_012")
