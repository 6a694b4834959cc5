"""A render farm in a folder, and agents whose tools work with it: for this process and others.

`jobs` lists what was started, one line each; `result` is what became of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentruntime.graph import Pending, client_tool, create_agent, register, tool
from agentruntime.graph.registry import unregister
from tests.agents import asks_for, call

FOLDER = "TEST_FARM"


def folder() -> Path:
    return Path(os.environ[FOLDER])


def lines(name: str) -> list[str]:
    file = folder() / name
    return file.read_text().split() if file.exists() else []


def note(name: str, text: str) -> None:
    with (folder() / name).open("a") as file:
        file.write(text + "\n")


def finish(value: Any) -> None:
    (folder() / "result").write_text(json.dumps(value))


def ask_farm(handle: dict[str, str]) -> Any:
    """What has become of a job."""
    note("polls", handle["job"])
    file = folder() / "result"
    if not file.exists():
        return None
    value = json.loads(file.read_text())
    if value == "down":
        raise ConnectionError("the farm does not answer")
    if value == "broken":
        raise RuntimeError("the scene has no camera")
    if isinstance(value, dict) and "moved" in value:
        return Pending({"job": value["moved"]}, poll=ask_farm, every=1)
    return value


async def ask_farm_async(handle: dict[str, str]) -> Any:
    return ask_farm(handle)


@tool(effect="once")
def render(scene: str, ctx: Any, idempotency_key: str, wait: str = "poll") -> Pending:
    """Render a scene."""
    note("jobs", scene)
    if wait == "callback":
        (folder() / "address").write_text(ctx.callback_url())
        return Pending({"job": scene}, deadline=3600)
    poll = ask_farm_async if wait == "async" else ask_farm
    deadline = None if wait == "for ever" else 3600
    return Pending({"job": scene}, poll=poll, every=60, deadline=deadline)


class Question(BaseModel):
    """Ask the user in the browser which colour it shall be."""

    among: list[str]


class Colour(BaseModel):
    name: str


pick = client_tool("pick_colour", Question, returns=Colour)


def agents() -> dict[str, Any]:
    scene = {"scene": "cow"}
    return {
        "farm": create_agent(model=asks_for([call("render", **scene)]), tools=[render]),
        "farm-called": create_agent(
            model=asks_for([call("render", **scene, wait="callback")]), tools=[render]
        ),
        "picker": create_agent(
            model=asks_for([call("pick_colour", among=["red", "blue"])]), tools=[pick]
        ),
    }


def register_agents() -> None:
    for name, graph in agents().items():
        unregister(name)
        register(name, graph)
