"""Peer: 10xGraph with `PgCheckpointer` (PostgreSQL and Redis), a checkpoint per step."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

from tenxgraph.core.graph import StateGraph, ToolNode
from tenxgraph.core.state import AgentState, Message
from tenxgraph.storage.checkpointer import PgCheckpointer
from tenxgraph.utils import interrupt
from tenxgraph.utils.constants import END

import benchmarks.contenders as base
from benchmarks.text import text

marks: dict[str, list[float]] = {}
sizes: dict[str, int] = {}
turns: dict[str, tuple[int, float, str]] = {}
tool_at: dict[str, float] = {}


class State(AgentState):
    """A conversation and a counter."""

    counter: int = 0


def node_named(name: str) -> Any:
    """A step; asynchronous, because a plain function costs a thread for each call."""

    async def count(state: State, config: dict) -> list[Message]:
        thread = config["thread_id"]
        marks.setdefault(thread, []).append(time.perf_counter())
        state.counter += 1
        return [assistant(text(sizes.get(thread, 12)))]

    count.__name__ = name
    return count


def assistant(content: str, calls: list[tuple[str, dict]] | None = None) -> Message:
    """A message of the model, with (tool, arguments) calls."""
    message = Message.text_message(content, role="assistant")
    if calls:
        message.tools_calls = [
            {
                "id": f"c{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given)},
            }
            for n, (name, given) in enumerate(calls)
        ]
    return message


async def sleep_async(seconds: float, tool_call_id: str = "") -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "ok"


def sleep_sync(seconds: float, tool_call_id: str = "") -> str:
    """Sleep."""
    time.sleep(seconds)
    return "ok"


async def charge(order: str, config: dict) -> str:
    """Charge, when a person agrees."""
    interrupt({"order": order}, message="May it be charged?")
    tool_at[config["thread_id"]] = time.perf_counter()
    return "charged"


async def ask_for_sleep(state: State, config: dict) -> list[Message]:
    """A model that asks for parallel tools, then answers."""
    thread = config["thread_id"]
    marks.setdefault(thread, []).append(time.perf_counter())
    if state.context[-1].role == "tool":
        return [assistant("done")]
    number, seconds, mode = turns[thread]
    return [assistant("one moment", [(f"sleep_{mode}", {"seconds": seconds})] * number)]


async def ask_for_charge(state: State, config: dict) -> list[Message]:
    """A model that asks for the charge, then answers."""
    if state.context[-1].role == "tool":
        return [assistant("done")]
    return [assistant("one moment", [("charge", {"order": "1"})])]


class Contender(base.Contender):
    """Graphs of asynchronous nodes on one event loop; it keeps state in Redis too."""

    def _saver(self) -> PgCheckpointer:
        pool = {"min_size": 1, "max_size": max(self.place.threads, 16)}
        return PgCheckpointer(
            postgres_dsn=self.place.dsn, redis_url=self.place.redis_url, pool_config=pool
        )

    def migrate(self) -> None:
        async def go() -> None:
            saver = self._saver()
            await saver.asetup()
            await saver.arelease()

        asyncio.run(go())

    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.graphs: dict[str, Any] = {}

        async def go() -> None:
            self.saver = self._saver()

        self.runner.run(go())

    def close(self) -> None:
        self.runner.run(self.saver.arelease())

    def _chain(self, steps: int) -> Any:
        name = f"chain {steps}"
        if name not in self.graphs:
            graph = StateGraph[State](State())
            nodes = [f"n{number}" for number in range(steps)]
            for node in nodes:
                graph.add_node(node, node_named(node))
            for before, after in itertools.pairwise([*nodes, END]):
                graph.add_edge(before, after)
            graph.set_entry_point(nodes[0])
            self.graphs[name] = graph.compile(checkpointer=self.saver)
        return self.graphs[name]

    def _agent(self, model: Any, tools: list[Any]) -> Any:
        if model.__name__ not in self.graphs:
            graph = StateGraph[State](State())
            graph.add_node("MODEL", model)
            graph.add_node("TOOLS", ToolNode(tools))
            graph.add_conditional_edges(
                "MODEL",
                lambda state: "TOOLS" if state.context[-1].tools_calls else END,
                {"TOOLS": "TOOLS", END: END},
            )
            graph.add_edge("TOOLS", "MODEL")
            graph.set_entry_point("MODEL")
            self.graphs[model.__name__] = graph.compile(checkpointer=self.saver)
        return self.graphs[model.__name__]

    async def _invoke(self, graph: Any, thread: str, given: dict[str, Any]) -> None:
        config = {"thread_id": thread, "user_id": "user", "recursion_limit": 10_000}
        await graph.ainvoke(given, config)

    def _go(self, graph: Any, thread: str, content: str = "go") -> None:
        given = {"messages": [Message.text_message(content)]}
        self.runner.run(self._invoke(graph, thread, given))

    def step(self, thread: str, steps: int) -> list[float]:
        self._go(self._chain(steps), thread)
        ended = [*marks.pop(thread), time.perf_counter()]
        return [after - before for before, after in itertools.pairwise(ended)]

    def many(self, threads: list[str], steps: int) -> None:
        graph = self._chain(steps)

        async def go() -> None:
            await asyncio.gather(
                *(
                    self._invoke(graph, thread, {"messages": [Message.text_message("go")]})
                    for thread in threads
                )
            )

        self.runner.run(go())

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        sizes[thread], took = size, []
        for _ in range((upto - have) // 10):
            begun = time.perf_counter()
            self._go(self._chain(9), thread, text(size))
            took.append((time.perf_counter() - begun) / 10)
        return took

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        turns[thread] = (count, seconds, mode)
        self._go(self._agent(ask_for_sleep, [sleep_async, sleep_sync]), thread)
        first, second = marks[thread]
        return second - first

    def pause(self, thread: str, messages: int, size: int) -> None:
        said = [
            Message.text_message(text(size), role=("user", "assistant")[number % 2])
            for number in range(messages - 2)
        ]
        given = {"messages": [*said, Message.text_message(text(size))]}
        self.runner.run(self._invoke(self._agent(ask_for_charge, [charge]), thread, given))

    def answer(self, thread: str) -> dict[str, float]:
        graph = self._agent(ask_for_charge, [charge])
        begun = time.perf_counter()
        self.runner.run(self._invoke(graph, thread, {"resume": {"approved": True}}))
        done, ran = time.perf_counter(), tool_at[thread]
        return {"tool_at": ran, "to_tool": ran - begun, "to_done": done - begun}
