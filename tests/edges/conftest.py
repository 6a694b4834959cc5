"""People, graphs and a web process for the tests of the edges."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentruntime.graph import Message, ToolCall, create_agent, interrupt, register, tool
from agentruntime.graph.registry import unregister
from tests.processes import ROOT
from tests.services import free_port
from tests.waiting import wait_until


@pytest.fixture
def person(db: None, django_user_model: Any) -> Callable[..., Any]:
    """Makes a user with the named permissions (`app.codename`)."""
    from django.contrib.auth.models import Permission

    def make(name: str, *permissions: str, **fields: Any) -> Any:
        user = django_user_model.objects.create_user(name, password="pass-word-1", **fields)
        for one in permissions:
            app, codename = one.split(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        return user

    return make


@pytest.fixture
def runtime(settings: Any) -> Callable[..., None]:
    """Lays settings over `AGENTRUNTIME`; no run is worked off behind the test's back."""
    before = dict(settings.AGENTRUNTIME)

    def lay(**more: Any) -> None:
        settings.AGENTRUNTIME = {**before, "EMBEDDED_WORKER": False, **more}

    lay()
    return lay


@pytest.fixture
def work(runtime: Callable[..., None]) -> Callable[[Any], Any]:
    """Works a run off in this thread, as a worker would, and returns it."""
    from agentruntime.lifecycle.loop import execute
    from agentruntime.models import Run

    def until_it_rests(run_id: Any) -> Any:
        execute(run_id)
        return Run.objects.get(pk=run_id)

    return until_it_rests


@pytest.fixture
def ann(person: Callable[..., Any]) -> Any:
    return person("ann")


@pytest.fixture
def bob(person: Callable[..., Any]) -> Any:
    return person("bob")


@pytest.fixture
def api() -> Callable[..., Any]:
    """Gives a client of the API: of a user by session, or by a token with scopes."""
    from rest_framework.test import APIClient

    from agentruntime.tokens import create_token

    def client(user: Any = None, scopes: tuple[str, ...] = ()) -> APIClient:
        made = APIClient()
        if scopes:
            made.credentials(HTTP_AUTHORIZATION=f"Token {create_token(user, scopes)[1]}")
        elif user is not None:
            made.force_login(user)
        return made

    return client


@pytest.fixture
def asking() -> Iterator[str]:
    """The name of a graph that asks one question and tells the answer."""

    @tool
    def ask(topic: str) -> dict[str, Any]:
        return {"answer": interrupt({"topic": topic}, message=f"What about {topic}?")}

    def model(messages: Any, tools: Any) -> Message:
        last = messages[-1]
        if last.role == "tool":
            return Message.assistant(f"You said {last.content}.")
        return Message.assistant(
            tool_calls=[ToolCall(id="call_1", name="ask", arguments={"topic": last.content})]
        )

    register("asking", create_agent(model=model, tools=[ask]))
    yield "asking"
    unregister("asking")


@pytest.fixture
def echo() -> Iterator[str]:
    """The name of a graph that says back what it is told."""

    def model(messages: Any, tools: Any) -> Message:
        return Message.assistant(f"echo: {messages[-1].content}")

    register("echo", create_agent(model=model))
    yield "echo"
    unregister("echo")


class WebProcess:
    """An ASGI server of this site."""

    def __init__(self, environment: dict[str, str], log: Path, *options: str) -> None:
        self.port = free_port()
        self.log = log
        command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, str(self.port), "--log-level", "warning", *options],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ws(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"The web process ended:\n{self.log.read_text()}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return bool(urllib.request.urlopen(self.url("/health/live")).status == 200)
        return False

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def web(
    process_environment: Callable[..., dict[str, str]], tmp_path: Path
) -> Iterator[Callable[..., WebProcess]]:
    """Starts a web process on the database of this test."""
    started: list[WebProcess] = []

    def start(
        *options: str, redis: bool | None = None, runtime: Any = None, **env: str
    ) -> WebProcess:
        log = tmp_path / f"web-{len(started)}.log"
        env["DJANGO_SETTINGS_MODULE"] = "tests.edges.site_settings"
        env["SITE_AGENTRUNTIME"] = json.dumps(runtime or {})
        made = WebProcess(process_environment(redis, **env), log, *options)
        started.append(made)
        wait_until(made.is_up, 30, lambda: f"the web process:\n{log.read_text()}")
        return made

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def shop(settings: Any, tmp_path: Path) -> Path:
    """The demo's shop with files of its own."""
    settings.DEMO_DIR, settings.DEMO_MODEL_DELAY = str(tmp_path / "shop"), 0
    return tmp_path / "shop"
