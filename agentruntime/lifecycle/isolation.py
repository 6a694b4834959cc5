"""Tools in a process of their own (`isolation="process"`): one that hangs or crashes is killed.

A server process (multiprocessing's fork server) has Django and every `agents.py` loaded and one
thread only; each call is a fork of it. What goes to and fro is JSON text. In there, `interrupt()`
and `once()` are not available: they speak to the run, which is elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from agentruntime import executors
from agentruntime.exceptions import AgentRuntimeError, ControlFlow
from agentruntime.graph import Tool, get_graph
from agentruntime.graph.messages import Message
from agentruntime.graph.places import graph_at
from agentruntime.graph.state import State, dump_state, load_state
from agentruntime.graph.tools import as_tool
from agentruntime.lifecycle.outcomes import Outcome, succeeded, words_of
from agentruntime.lifecycle.policy import with_policy

FACTS = (
    "run_id", "thread_id", "user_id", "tenant", "graph", "node", "idempotency_key", "attempt",
)  # fmt: skip
PR_SET_PDEATHSIG = 1


class ProcessDied(Exception):
    """The process of a tool ended without a word: whether the tool took effect is not known."""


class RaisedThere(Exception):
    """What a tool raised in its process: the name, the words, and what it is an instance of."""

    def __init__(self, kind: str, reason: str, lineage: list[str]) -> None:
        super().__init__(reason)
        self.raised_kind, self.lineage = kind, lineage

    def is_a(self, classes: tuple[type[Exception], ...]) -> bool:
        """Say whether the error there was an instance of one of these classes."""
        return any(_name(one) in self.lineage for one in classes)


class Alone:
    """One call in a process of its own, as the worker that waits for it sees it."""

    def __init__(self, tool: Tool, state: State, execution: Any, arguments: dict[str, Any]) -> None:
        self._execution = execution
        self._process: Any = None
        self._given_up = False
        self._request = json.dumps(
            {
                "tool": tool.name,
                "module": tool.fn.__module__,
                "qualname": tool.fn.__qualname__,
                "arguments": arguments,
                "facts": {name: _plain(getattr(execution, name)) for name in FACTS},
                "config": dict(execution.config),
                "state": dump_state(state) if "state" in tool.injected else None,
                "messages": [one.model_dump(mode="json") for one in state.messages]
                if "state" in tool.injected
                else [],
            }
        )

    def start(self, inbox: SimpleQueue[Any]) -> executors.Work:
        """Start the process and return the work, which can be cancelled at any moment."""
        work = executors.start(self._wait, inbox)
        work.on_cancel(self.kill)
        return work

    def kill(self) -> None:
        """End the process and whatever it started."""
        self._given_up = True
        if self._process is not None and self._process.pid is not None:  # else it is starting
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def _wait(self) -> Outcome:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["agentruntime.worker"])
        here, there = context.Pipe(duplex=False)
        self._process = context.Process(target=serve, args=(there, self._request), daemon=False)
        self._process.start()
        there.close()
        if self._given_up:
            self.kill()
        try:
            return self._listen(here)
        except EOFError:
            self._process.join(5)
            code = self._process.exitcode
            raise ProcessDied(f"its process ended with exit code {code}") from None
        finally:
            here.close()

    def _listen(self, here: Connection) -> Outcome:
        while True:
            said = json.loads(here.recv_bytes())
            if "emit" in said:
                self._execution.emit(said["emit"])
            elif "outcome" in said:
                return Outcome(**said["outcome"])
            else:
                raise RaisedThere(**said["raised"])


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | str) else str(value)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# --- in the other process --------------------------------------------------------------------


def serve(pipe: Connection, request: str) -> None:
    """Run one call and send what came of it. The whole life of the process."""
    os.setsid()
    if sys.platform == "linux":  # the fork server ends with its worker, and takes this along
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def send(**said: Any) -> None:
        pipe.send_bytes(json.dumps(said).encode())

    try:
        outcome = _call(json.loads(request), lambda data: send(emit=data))
        send(outcome={name: getattr(outcome, name) for name in Outcome.__dataclass_fields__})
    except (Exception, SystemExit) as error:  # an exit is what the tool raised, as in a thread
        kinds = [_name(kind) for kind in type(error).__mro__]
        reason = words_of(error).encode("utf-8", "backslashreplace").decode()
        send(raised={"kind": type(error).__name__, "reason": reason, "lineage": kinds})
    os._exit(0)


def _call(request: dict[str, Any], emit: Callable[[Any], None]) -> Outcome:
    tool, kind = _find(request)
    facts = request["facts"]
    context = SimpleNamespace(**facts, config=request["config"], deadline=None, emit=emit)
    given: dict[str, Any] = {
        "ctx": context,
        "tool_call_id": facts["idempotency_key"].partition(":")[2],
        "idempotency_key": facts["idempotency_key"],
    }
    if request["state"] is not None:
        messages = [Message.model_validate(one) for one in request["messages"]]
        given["state"] = load_state(kind, request["state"], messages)
    arguments = tool.load_arguments(request["arguments"])
    arguments |= {name: given[name] for name in tool.injected}
    try:
        value = asyncio.run(tool.fn(**arguments)) if tool.is_async else tool.fn(**arguments)
    except ControlFlow:
        raise RuntimeError("a tool in a process of its own cannot ask") from None
    return succeeded(tool, kind, value)


def _find(request: dict[str, Any]) -> tuple[Tool, type[State]]:
    """The tool by its graph, where that is loaded here too; else by the name of its function."""
    try:
        facts = request["facts"]
        graph, node = graph_at(get_graph(facts["graph"]), facts["node"])
        return with_policy(graph.nodes[node].tools[request["tool"]]), graph.state
    except (AgentRuntimeError, KeyError):
        found: Any = importlib.import_module(request["module"])
        for part in request["qualname"].split("."):
            found = getattr(found, part)
        return as_tool(found), State
