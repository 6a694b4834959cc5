"""Peer: LangGraph with `AsyncPostgresSaver`, `ainvoke`, `durability="sync"`."""

from __future__ import annotations

import asyncio
import itertools
import operator
import time
from typing import Annotated, Any, TypedDict

import langgraph.checkpoint.postgres.aio as aio
import langgraph.graph as lg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

import benchmarks.contenders as base
from benchmarks.text import text

marks: dict[str, list[float]] = {}
sizes: dict[str, int] = {}
turns: dict[str, tuple[int, float, str]] = {}
tool_at: dict[str, float] = {}


class State(TypedDict):
    """A conversation and a counter."""

    messages: Annotated[list[AnyMessage], lg.add_messages]
    counter: Annotated[int, operator.add]


def thread_of(config: RunnableConfig) -> str:
    """The thread that a node works for."""
    return config["configurable"]["thread_id"]


def said(content: str, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A node's update: one message, one more step."""
    return {"messages": [AIMessage(content, tool_calls=calls or [])], "counter": 1}


async def count(state: Any, config: RunnableConfig) -> dict[str, Any]:
    """One step."""
    thread = thread_of(config)
    marks.setdefault(thread, []).append(time.perf_counter())
    return said(text(sizes.get(thread, 12)))


@tool
async def sleep_async(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "ok"


@tool
def sleep_sync(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "ok"


@tool
async def charge(order: str, config: RunnableConfig) -> str:
    """Charge, when a person agrees."""
    interrupt({"order": order})
    tool_at[thread_of(config)] = time.perf_counter()
    return "charged"


async def ask_for_sleep(state: Any, config: RunnableConfig) -> dict[str, Any]:
    """A model that asks for parallel tools, then answers."""
    thread = thread_of(config)
    marks.setdefault(thread, []).append(time.perf_counter())
    if isinstance(state["messages"][-1], ToolMessage):
        return said("done")
    number, seconds, mode = turns[thread]
    return said(
        "one moment",
        [
            {
                "name": f"sleep_{mode}",
                "args": {"seconds": seconds},
                "id": f"c{n}",
                "type": "tool_call",
            }
            for n in range(number)
        ],
    )


async def ask_for_charge(state: Any) -> dict[str, Any]:
    """A model that asks for the charge, then answers."""
    if isinstance(state["messages"][-1], ToolMessage):
        return said("done")
    call = {"name": "charge", "args": {"order": "1"}, "id": "c0", "type": "tool_call"}
    return said("one moment", [call])


def next_of(state: Any) -> Any:
    """Each call is a task of its own, so that each result is saved on its own."""
    calls = state["messages"][-1].tool_calls
    return [Send("tools", [call]) for call in calls] if calls else lg.END


class Contender(base.Contender):
    """Graphs of asynchronous nodes on one event loop; a pool as large as there are threads."""

    state: Any = State

    def migrate(self) -> None:
        async def go() -> None:
            async with aio.AsyncPostgresSaver.from_conn_string(self.place.dsn) as saver:
                await saver.setup()

        asyncio.run(go())

    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.graphs: dict[str, Any] = {}
        self.runner.run(self._connect())

    async def _connect(self) -> None:
        keywords = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self.pool = AsyncConnectionPool(
            self.place.dsn,
            min_size=1,
            max_size=max(self.place.threads, 16),
            open=False,
            kwargs=keywords,
        )
        await self.pool.open()
        self.saver = aio.AsyncPostgresSaver(self.pool)

    def _chain(self, steps: int) -> Any:
        name = f"chain {steps}"
        if name not in self.graphs:
            graph = lg.StateGraph(self.state)
            nodes = [f"n{number}" for number in range(steps)]
            for node in nodes:
                graph.add_node(node, count)
            for before, after in itertools.pairwise([lg.START, *nodes, lg.END]):
                graph.add_edge(before, after)
            self.graphs[name] = graph.compile(checkpointer=self.saver)
        return self.graphs[name]

    def _agent(self, model: Any, tools: list[Any]) -> Any:
        name = model.__name__
        if name not in self.graphs:
            graph = lg.StateGraph(self.state)
            graph.add_node("model", model)
            graph.add_node("tools", ToolNode(tools))
            graph.add_edge(lg.START, "model")
            graph.add_conditional_edges("model", next_of, ["tools", lg.END])
            graph.add_edge("tools", "model")
            self.graphs[name] = graph.compile(checkpointer=self.saver)
        return self.graphs[name]

    async def _invoke(self, graph: Any, thread: str, given: Any) -> None:
        if isinstance(given, list):
            given = {"messages": given, "counter": 0}
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 10_000}
        await graph.ainvoke(given, config, durability="sync")

    def step(self, thread: str, steps: int) -> list[float]:
        self.runner.run(self._invoke(self._chain(steps), thread, [HumanMessage("go")]))
        ended = [*marks.pop(thread), time.perf_counter()]
        return [after - before for before, after in itertools.pairwise(ended)]

    def many(self, threads: list[str], steps: int) -> None:
        graph = self._chain(steps)

        async def go() -> None:
            runs = (self._invoke(graph, thread, [HumanMessage("go")]) for thread in threads)
            await asyncio.gather(*runs)

        self.runner.run(go())

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        sizes[thread], took = size, []
        for _ in range((upto - have) // 10):
            begun = time.perf_counter()
            given = [HumanMessage(text(size))]
            self.runner.run(self._invoke(self._chain(9), thread, given))
            took.append((time.perf_counter() - begun) / 10)
        return took

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        turns[thread] = (count, seconds, mode)
        graph = self._agent(ask_for_sleep, [sleep_async, sleep_sync])
        self.runner.run(self._invoke(graph, thread, [HumanMessage("go")]))
        first, second = marks[thread]
        return second - first

    def pause(self, thread: str, messages: int, size: int) -> None:
        kinds = (HumanMessage, AIMessage)
        said = [kinds[number % 2](text(size)) for number in range(messages - 2)]
        graph = self._agent(ask_for_charge, [charge])
        self.runner.run(self._invoke(graph, thread, [*said, HumanMessage(text(size))]))

    def answer(self, thread: str) -> dict[str, float]:
        graph = self._agent(ask_for_charge, [charge])
        begun = time.perf_counter()
        self.runner.run(self._invoke(graph, thread, Command(resume={"approved": True})))
        done, ran = time.perf_counter(), tool_at[thread]
        return {"tool_at": ran, "to_tool": ran - begun, "to_done": done - begun}

    def close(self) -> None:
        self.runner.run(self.pool.close())
