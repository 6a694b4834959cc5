"""Branches side by side: each durable by itself, joined in order, asked and answered one by one."""

import asyncio
import operator
import threading
from queue import SimpleQueue
from typing import Annotated

import pytest

from agentruntime import executors
from agentruntime.exceptions import InvalidConfig, InvalidGraph
from agentruntime.graph import (
    END,
    START,
    Command,
    Message,
    Send,
    State,
    StateGraph,
    ToolNode,
    ToolResult,
    interrupt,
    once,
    register,
    tool,
)
from agentruntime.lifecycle import fork_thread, resume_run, retry_run, start_run, stop_run
from agentruntime.lifecycle.lease import keeper
from agentruntime.lifecycle.loop import execute
from agentruntime.models import BranchStep, Checkpoint, Interrupt, ToolExecution
from tests.agents import call, registered
from tests.lifecycle.people import decided
from tests.waiting import wait_until


class Board(State):
    notes: Annotated[list[str], operator.add] = []
    items: list[str] = []
    item: str = ""
    word: str = ""


def fan(*names, node=None, join=None, state=Board):
    """START opens a branch for each name; all lead to `join`."""
    graph = StateGraph(state)
    for name in names:
        graph.add_node(name, node(name) if node else lambda state, name=name: {"notes": [name]})
        graph.add_edge(START, name).add_edge(name, "join")
    graph.add_node("join", join or (lambda state: {"word": "+".join(state.notes)}))
    return graph.add_edge("join", END)


def mapped(node, join=None):
    """A worker for each item."""
    graph = StateGraph(Board)
    graph.add_node("split", lambda state: None)
    graph.add_node("worker", node)
    graph.add_node("join", join or (lambda state: None))
    graph.add_edge(START, "split").add_edge("worker", "join").add_edge("join", END)
    return graph.add_conditional_edges(
        "split", lambda state: [Send("worker", {"item": one}) for one in state.items], ["worker"]
    )


def head(run):
    return Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()


@pytest.mark.parametrize("items", [[], ["a"], ["a", "b"]])
def test_each_item_has_a_worker_however_few_there_are(drive, items):
    graph = mapped(lambda state: {"notes": [f"did {state.item}"]})
    with registered(graph) as name:
        run = drive(name, input={"items": items})
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == [f"did {one}" for one in items]


def test_a_command_may_send_one_branch_only(drive):
    graph = StateGraph(Board)
    graph.add_node("pick", lambda state: Command(goto=Send("worker", {"item": "a"})))
    graph.add_node("worker", lambda state: {"notes": [state.item]})
    graph.add_edge(START, "pick").add_edge("worker", END)
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, head(run).state["notes"]) == ("completed", ["a"])


def test_several_edges_open_branches_that_are_joined_in_order(drive, look):
    with registered(fan("c", "a", "b")) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["c", "a", "b"]
    assert head(run).state["word"] == "c+a+b"
    assert [row.next_node for row in Checkpoint.objects.order_by("version")] == [
        "__branches__",
        "join",
        END,
    ]
    finished = BranchStep.objects.filter(number=1).order_by("index")
    assert [row.node for row in finished] == ["c", "a", "b"]


def test_a_map_keeps_the_order_of_the_items_and_the_bound(drive):
    lock, at_work, most, full = threading.Lock(), [], [], threading.Event()

    def worker(state):
        with lock:
            at_work.append(state.item)
            most.append(len(at_work))
        if len(at_work) == 8:
            full.set()
        assert full.wait(20)
        threading.Event().wait(0.002 * (int(state.item) % 5))
        with lock:
            at_work.remove(state.item)
        return {"notes": [state.item]}

    items = [str(n) for n in range(100)]
    with registered(mapped(worker)) as name:
        run = drive(name, {"items": items}, config={"recursion_limit": 150})
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == items
    assert (head(run).state["item"], len(most), max(most)) == ("", 100, 8)


def test_the_bound_is_the_runs_own(drive):
    most, at_work = [], []

    def worker(state):
        at_work.append(1)
        most.append(len(at_work))
        threading.Event().wait(0.01)
        at_work.pop()

    with registered(mapped(worker)) as name:
        drive(name, {"items": list("abcdef")}, config={"at_once": 2})
        assert max(most) == 2
        for bad in (0, True, "3", 1001):
            with pytest.raises(InvalidConfig, match="at_once"):
                start_run(graph=name, input="x", config={"at_once": bad})


def test_no_items_is_a_map_that_is_done(drive):
    with registered(mapped(lambda state: {"notes": [state.item]})) as name:
        run = drive(name, {"items": []})
    assert (run.status, head(run).state["notes"]) == ("completed", [])


def test_a_step_of_a_branch_does_not_read_those_of_all_others(drive, monkeypatch):
    read = []
    load = BranchStep.from_db.__func__

    def counted(kind, *columns):
        read.append(1)
        return load(kind, *columns)

    monkeypatch.setattr(BranchStep, "from_db", classmethod(counted))
    with registered(mapped(lambda state: {"notes": [state.item]})) as name:
        run = drive(name, {"items": list("abcdefghijklmnopqrst")})
    assert run.status == "completed"
    assert len(read) <= 2 * 20, "when the branches begin, and not at each of their steps"


def test_each_branchs_steps_count_and_a_map_that_would_exceed_the_limit_begins_no_item(drive):
    ran = []
    with registered(mapped(lambda state: ran.append(state.item))) as name:
        run = drive(name, {"items": list("abcdef")}, config={"recursion_limit": 6})
        assert (run.status, run.error_code, ran) == ("failed", "RECURSION_LIMIT_001", [])
        assert "1 of at most 6 steps" in run.error_detail
        retry_run(run_id=run.pk, config={"recursion_limit": 9})
        run = drive(run=run)
    assert (run.status, sorted(ran), run.branched_steps) == ("completed", list("abcdef"), 6)


def test_different_values_without_a_reducer_are_a_conflict_and_equal_ones_are_none(drive):
    with registered(fan("a", "b", node=lambda name: lambda state: {"word": name})) as name:
        run = drive(name)
        assert (run.status, run.error_code) == ("failed", "STATE_CONFLICT_001")
        assert "a #0, b #1" in run.error_detail
    same = fan("a", "b", node=lambda name: lambda state: {"word": "same"}, join=lambda state: None)
    with registered(same) as name:
        run = drive(name)
        assert head(run).state["word"] == "same"


def test_a_command_opens_branches_with_and_without_something_given(drive):
    def boss(state):
        return Command(update={"word": "go"}, goto=["a", Send("a", {"item": "given"}), "b"])

    graph = StateGraph(Board)
    graph.add_node("boss", boss)
    graph.add_node("a", lambda state: {"notes": [f"a {state.word} {state.item}"]})
    graph.add_node("b", lambda state: Message.assistant("from b", id="b"))
    graph.add_node("join", lambda state: Message.assistant("joined"))
    graph.add_edge(START, "boss").add_edge("a", "join").add_edge("b", "join").add_edge("join", END)
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["a go ", "a go given"]
    said = run.thread.messages.order_by("ordinal").values_list("content", flat=True)
    assert list(said) == ["hello", "from b", "joined"]


def test_a_branch_may_be_a_chain_and_open_branches_of_its_own(drive):
    def say(word):
        return lambda state: {"notes": [word]}

    graph = StateGraph(Board)
    for word in ("a", "a1", "a2", "a3", "b", "b1", "join"):
        graph.add_node(word, say(word))
    graph.add_edge(START, "a").add_edge(START, "b")
    graph.add_edge("a", "a1").add_edge("a", "a2").add_edge("a1", "a3").add_edge("a2", "a3")
    graph.add_edge("a3", "join").add_edge("b", "b1").add_edge("b1", "join").add_edge("join", END)
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["a", "a1", "a2", "a3", "b", "b1", "join"]


def test_a_branch_that_fails_leaves_what_is_finished_finished(drive):
    ran, broken = [], {"b"}

    def node(name):
        def work(state):
            ran.append(name)
            if name in broken:
                raise ValueError("not today")
            return {"notes": [name]}

        return work

    with registered(fan("a", "b", "c", node=node)) as name:
        run = drive(name)
        assert (run.status, run.error_code, sorted(ran)) == (
            "failed", "NODE_FAILED_001", ["a", "b", "c"],
        )  # fmt: skip
        broken.clear()
        retry_run(run_id=run.pk)
        run = drive(run=run)
    assert (run.status, head(run).state["notes"]) == ("completed", ["a", "b", "c"])
    assert sorted(ran) == ["a", "b", "b", "c"]


def asks(name, entered):
    def node(state):
        entered.append(name)
        return {"notes": [f"{name}={interrupt('what?')}"]}

    return node


def test_answering_one_waiting_branch_does_not_enter_the_other(drive, look):
    entered = []
    with registered(fan("a", "b", "c", node=lambda name: asks(name, entered))) as name:
        run = drive(name)
        first, second, third = look.open(run)
        assert run.status == "interrupted"
        assert len({first.pk, second.pk, third.pk}) == 3
        scopes = {one.scope.split("@")[0]: one for one in (first, second, third)}
        resume_run(interrupt_id=scopes["b"].pk, value="B")
        run = drive(run=run)
        assert run.status == "interrupted"
        assert {one.pk for one in look.open(run)} == {scopes["a"].pk, scopes["c"].pk}
        assert sorted(entered) == ["a", "b", "b", "c"]
        resume_run(interrupt_id=scopes["c"].pk, value="C")
        resume_run(interrupt_id=scopes["a"].pk, value="A")
        run = drive(run=run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["a=A", "b=B", "c=C"]
    assert sorted(entered) == ["a", "a", "b", "b", "c", "c"]
    assert Interrupt.objects.count() == 3


def test_items_of_a_map_ask_the_same_and_get_their_own_answers(drive, look):
    def worker(state):
        answer = interrupt("same words", message=state.item)
        return {"notes": [f"{state.item}{once('mark', lambda: answer)}"]}

    with registered(mapped(worker)) as name:
        run = drive(name, {"items": ["x", "y"]})
        by = {one.message: one for one in look.open(run)}
        resume_run(interrupt_id=by["y"].pk, value="2")
        run = drive(run=run)
        resume_run(interrupt_id=by["x"].pk, value="1")
        run = drive(run=run)
    assert (run.status, head(run).state["notes"]) == ("completed", ["x1", "y2"])


def test_tools_in_branches_have_rows_of_their_own_and_a_gated_one_holds_up_only_its_branch(
    drive, look
):
    did = []

    @tool(approval=True)
    def pay(to: str, idempotency_key: str) -> ToolResult:
        did.append((to, idempotency_key))
        return ToolResult("paid", update={"notes": [f"paid {to}"]})

    def ask(state):
        return Message.assistant("", tool_calls=[call("pay", "c1", to=state.item)])

    pays = StateGraph(Board)
    pays.add_node("ask", ask).add_node("pay", ToolNode([pay]))
    pays.add_node("tell", lambda state: {"notes": [state.messages[-1].content]})
    pays.add_edge(START, "ask").add_edge("ask", "pay").add_edge("pay", "tell").add_edge("tell", END)
    with registered(mapped(pays)) as name:
        run = drive(name, {"items": ["ann", "bob"]})
        assert (run.status, did, len(look.calls(run))) == ("interrupted", [], 2)
        decided(to="bob")
        run = drive(run=run)
        assert [to for to, _ in did] == ["bob"]
        assert run.status == "interrupted"
        decided(to="ann")
        run = drive(run=run)
    assert (run.status, run.error_detail) == ("completed", "")
    assert head(run).state["notes"] == ["paid ann", "paid", "paid bob", "paid"]
    assert len({key for _, key in did}) == 2 == len(look.calls(run))
    said = run.thread.messages.order_by("ordinal").values_list("role", flat=True)
    assert list(said) == ["assistant", "tool", "assistant", "tool"]


def test_a_stop_while_branches_wait_ends_everything_they_asked(drive, look):
    with registered(fan("a", "b", node=lambda name: asks(name, []))) as name:
        run = drive(name)
        stop_run(run_id=run.pk)
    assert set(Interrupt.objects.values_list("status", flat=True)) == {"cancelled"}


def slow_and_quick(ran):
    """Two branches that are done at once, and one that takes its time when it is first begun."""
    begun = threading.Event()

    async def slow(state):
        ran.append("slow")
        if ran.count("slow") == 1:
            begun.set()
            await asyncio.sleep(60)
        return {"notes": ["slow"]}

    def node(name):
        return slow if name == "slow" else lambda state: ran.append(name) or {"notes": [name]}

    return fan("a", "slow", "b", node=node), begun


def beside(run, begun):
    """Work off the run in another thread, as a worker does, up to the slow branch."""
    work = executors.start(lambda: execute(run.pk), SimpleQueue())
    assert begun.wait(30)
    done = BranchStep.objects.filter(thread=run.thread_id, number=1)
    wait_until(lambda: done.count() == 2, 30, "two recorded branches")
    return work


def test_a_stop_ends_branches_that_are_at_work(drive, look):
    ran = []
    graph, begun = slow_and_quick(ran)
    with registered(graph) as name:
        run = start_run(graph=name, input="go")
        work = beside(run, begun)
        stop_run(run_id=run.pk)
        wait_until(lambda: work.done, 30, "the end of the work")
        assert look.fresh(run).status == "stopped"
        assert look.fresh(drive(run=run)).status == "stopped"
    assert sorted(ran) == ["a", "b", "slow"]


def test_a_worker_that_ends_gives_open_branches_back_and_keeps_the_finished(drive, look):
    ran = []
    graph, begun = slow_and_quick(ran)
    with registered(graph) as name:
        run = start_run(graph=name, input="go")
        work = beside(run, begun)
        keeper.drain()
        try:
            wait_until(lambda: work.done, 30, "the end of the work")
        finally:
            keeper.resume()
        assert look.fresh(run).status == "queued"
        run = drive(run=run)
    assert (run.status, head(run).state["notes"]) == ("completed", ["a", "slow", "b"])
    assert sorted(ran) == ["a", "b", "slow", "slow"]


def test_a_tool_that_tries_again_later_does_not_hold_up_its_siblings(drive, look):
    tries = []

    @tool(retries=2, retry_delay=2.0)
    def flaky(of: str) -> ToolResult:
        tries.append(of)
        if tries.count(of) < 2 and of == "x":
            raise ConnectionError("busy")
        return ToolResult("ok", update={"notes": [of]})

    def ask(state):
        return Message.assistant("", tool_calls=[call("flaky", of=state.item)])

    calls = StateGraph(Board).add_node("ask", ask).add_node("call", ToolNode([flaky]))
    calls.add_edge(START, "ask").add_edge("ask", "call").add_edge("call", END)
    with registered(mapped(calls)) as name:
        run = drive(name, {"items": ["x", "y"]})
        assert (run.status, sorted(tries)) == ("queued", ["x", "y"])
        wait_until(lambda: drive(run=run).status != "queued", 20, "the second try")
    assert (look.fresh(run).status, sorted(tries)) == ("completed", ["x", "x", "y"])
    assert head(run).state["notes"] == ["x", "y"]


def test_without_a_checkpoint_per_step_branches_are_as_durable(drive, look):
    entered = []
    config = {"durable_checkpoint_every_step": False}
    with registered(fan("a", "b", node=lambda name: asks(name, entered))) as name:
        run = drive(name, config=config)
        for one in look.open(run):
            resume_run(interrupt_id=one.pk, value="v")
            run = drive(run=run)
    assert (run.status, head(run).state["word"]) == ("completed", "a=v+b=v")
    assert sorted(entered) == ["a", "a", "b", "b"]


def test_a_returned_state_replaces_and_conflicts_with_what_another_branch_adds(drive):
    def whole(state):
        return state.model_copy(update={"notes": ["all new"]})

    alone = fan("a", "b", node=lambda n: whole if n == "a" else lambda state: None)
    with registered(alone) as name:
        assert head(drive(name)).state["notes"] == ["all new"]
    both = fan("a", "b", node=lambda n: whole if n == "a" else lambda state: {"notes": ["b"]})
    with registered(both) as name:
        assert drive(name).error_code == "STATE_CONFLICT_001"


def test_a_fork_from_open_branches_begins_them_anew_and_leaves_the_old_ones(drive, look):
    entered = []
    with registered(fan("a", "b", node=lambda name: asks(name, entered))) as name:
        run = drive(name)
        for one, value in zip(look.open(run), "AB", strict=True):
            resume_run(interrupt_id=one.pk, value=value)
        run = drive(run=run)
        assert (run.status, len(entered)) == ("completed", 4)
        before = BranchStep.objects.filter(thread=run.thread_id).count()
        twin = drive(run=fork_thread(thread_id=run.thread_id, version=1))
        assert (twin.status, len(look.open(twin)), len(entered)) == ("interrupted", 2, 6)
        assert {one.pk for one in look.open(twin)} & set(run.interrupts.values_list("pk")) == set()
        for one in look.open(twin):
            resume_run(interrupt_id=one.pk, value="x")
        twin = drive(run=twin)
    assert sorted(head(twin).state["notes"]) == ["a=x", "b=x"]
    assert BranchStep.objects.filter(thread=run.thread_id).count() == before


def test_async_nodes_are_branches_too(drive):
    async def node(state):
        return {"notes": [state.item]}

    with registered(mapped(node)) as name:
        run = drive(name, {"items": ["1", "2", "3"]})
    assert (run.status, head(run).state["notes"]) == ("completed", ["1", "2", "3"])


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        ([(START, "a"), ("a", "b"), ("a", END), ("b", END)], "begins at END"),
        ([(START, "a"), ("a", "b"), ("a", "c"), ("b", "c"), ("c", END)], "both a branch"),
        ([(START, "a"), ("a", "b"), ("a", "c"), ("b", END)], "'c' has no edge"),
    ],
)
def test_branches_that_cannot_be_joined_are_refused_at_registration(edges, problem):
    graph = StateGraph(Board)
    for name in {one for edge in edges for one in edge} - {START, END}:
        graph.add_node(name, lambda state: None)
    for edge in edges:
        graph.add_edge(*edge)
    with pytest.raises(InvalidGraph, match=problem):
        register("never", graph)


def test_branches_that_would_make_the_same_calls_are_refused():
    graph = StateGraph(Board).add_node("ask", lambda state: None)
    graph.add_node("t1", ToolNode([])).add_node("t2", ToolNode([]))
    graph.add_edge(START, "ask").add_edge("ask", "t1").add_edge("ask", "t2")
    graph.add_edge("t1", END).add_edge("t2", END)
    with pytest.raises(InvalidGraph, match="the same calls"):
        register("never", graph)


def test_one_edge_twice_and_an_edge_beside_a_conditional_one_are_refused():
    graph = StateGraph(Board).add_edge("a", "b")
    with pytest.raises(InvalidGraph, match="two edges"):
        graph.add_edge("a", "b")
    with pytest.raises(InvalidGraph, match="two edges"):
        graph.add_conditional_edges("a", lambda state: "b")


def test_the_ledger_of_a_map_knows_which_item_a_memo_is_of(drive):
    with registered(mapped(lambda state: {"notes": [once("n", lambda: state.item)]})) as name:
        run = drive(name, {"items": ["p", "q"]})
    assert head(run).state["notes"] == ["p", "q"]
    assert ToolExecution.objects.filter(kind="once").count() == 2
