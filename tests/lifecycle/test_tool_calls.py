"""Tool calls: each its own row, started after its intent, never again after its outcome."""

import operator
import threading
import time
from decimal import Decimal
from typing import Annotated

import pytest

from agentruntime.exceptions import InvalidTool
from agentruntime.graph import NOT_DONE, UNKNOWN, State, ToolCall, ToolNode, ToolResult, once, tool
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.lifecycle.claim import claim_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import DatabaseTime, Run, ToolExecution
from tests.agents import agent, call


def lose_worker(run):
    """As after SIGKILL: the lease lapses, nobody gave it back."""
    Run.objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))


def test_calls_of_one_turn_run_in_parallel_and_answer_in_order(drive, look):
    both = threading.Barrier(2, timeout=5)

    def left() -> str:
        both.wait()
        time.sleep(0.05)
        return "left"

    async def right() -> str:
        import asyncio

        await asyncio.to_thread(both.wait)
        return "right"

    with agent([left, right], [call("left", "a"), call("right", "b")]) as name:
        run = drive(name)
    assert look.messages(run)[2:4] == [("tool", "left"), ("tool", "right")]
    assert [(row.tool, row.status, row.attempts) for row in look.calls(run)] == [
        ("left", "succeeded", 1),
        ("right", "succeeded", 1),
    ]


def test_the_intent_is_committed_before_the_body_runs(drive):
    seen = []

    def act(idempotency_key: str) -> str:
        row = ToolExecution.objects.get(call_key=idempotency_key)
        seen.append((row.status, row.attempts, row.result))
        return "done"

    with agent([act], [call("act")]) as name:
        drive(name)
    assert seen == [("running", 1, None)]


def test_one_failure_does_not_touch_its_siblings(drive, look):
    def breaks() -> str:
        raise ValueError("no luck")

    def works() -> str:
        return "fine"

    with agent([breaks, works], [call("breaks", "a"), call("works", "b")]) as name:
        run = drive(name)
    assert run.status == "completed"
    assert look.messages(run)[2:4] == [("tool", "Error: ValueError: no luck"), ("tool", "fine")]
    assert [row.status for row in look.calls(run)] == ["failed", "succeeded"]


@pytest.mark.parametrize("arguments", ["", " ", None, {}, "{}"])
def test_no_arguments_are_fine_where_none_are_needed(drive, look, arguments):
    def ping() -> str:
        return "pong"

    with agent([ping], [ToolCall(id="1", name="ping", arguments=arguments)]) as name:
        assert look.messages(drive(name))[2] == ("tool", "pong")


@pytest.mark.parametrize(
    "arguments", ["", None, "null", "[]", "5", '{"a":', {}, {"amount": "x"}, {"amount": 1, "b": 2}]
)
def test_bad_arguments_go_back_to_the_model_and_nobody_is_asked(drive, look, arguments):
    ran = []

    @tool(approval=True)
    def pay(amount: Decimal) -> str:
        ran.append(amount)
        return "paid"

    with agent([pay], [ToolCall(id="1", name="pay", arguments=arguments)]) as name:
        run = drive(name)
    assert run.status == "completed"
    assert look.messages(run)[2][1].startswith("Error: The arguments of 'pay' are not valid")
    assert (ran, [(row.status, row.attempts) for row in look.calls(run)]) == ([], [("failed", 0)])


def test_an_unknown_tool_is_named_and_its_sibling_runs(drive, look):
    def real() -> str:
        return "ok"

    with agent([real], [call("nope", "a"), call("real", "b")]) as name:
        run = drive(name)
    assert look.messages(run)[2:4] == [
        ("tool", "Error: There is no tool 'nope'; there are: real."),
        ("tool", "ok"),
    ]


def test_repeated_and_empty_ids_still_get_one_row_each(drive, look):
    ran = []

    def act(n: int) -> str:
        ran.append(n)
        return str(n)

    calls = [
        call("act", "x", n=1),
        call("act", "x", n=2),
        call("act", "", n=3),
        call("act", "", n=4),
    ]
    with agent([act], calls) as name:
        run = drive(name)
        again = drive(name, input="again", thread_id=run.thread_id)
    assert again.status == "completed"
    assert sorted(ran) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len({row.call_key for row in look.calls(run)}) == 8
    assert [content for _, content in look.messages(run)[2:6]] == ["1", "2", "3", "4"]


class Basket(State):
    items: Annotated[list[str], operator.add] = []
    total: Decimal = Decimal(0)


def test_deltas_of_parallel_calls_are_joined_by_the_reducer_in_call_order(drive):
    def add(item: str) -> ToolResult:
        time.sleep(0.05 if item == "a" else 0)
        return ToolResult("added", update={"items": [item]})

    with agent(
        [add], [call("add", "1", item="a"), call("add", "2", item="b")], state=Basket
    ) as name:
        run = drive(name)
    assert run.thread.checkpoints.order_by("-version").first().state == {
        "items": ["a", "b"],
        "total": "0",
    }


def test_two_values_for_a_field_without_a_reducer_are_a_conflict(drive, look):
    def price(n: int) -> ToolResult:
        return ToolResult("set", update={"total": Decimal(n)})

    with agent([price], [call("price", "1", n=1), call("price", "2", n=2)], state=Basket) as name:
        run = drive(name)
    assert (run.status, run.error_code) == ("failed", "STATE_CONFLICT_001")
    assert [row.status for row in look.calls(run)] == ["succeeded", "succeeded"]


def test_a_result_that_cannot_be_stored_is_said_and_never_repeated(drive, look):
    ran = []

    def odd() -> dict:
        ran.append(1)
        return {"a": float("nan")}

    with agent([odd], [call("odd")]) as name:
        run = drive(name)
    row = look.calls(run)[0]
    assert (run.status, ran, row.status, row.error["code"]) == (
        "completed",
        [1],
        "succeeded",
        "TOOL_RESULT_001",
    )
    assert "cannot be stored" in look.messages(run)[2][1]


def test_a_huge_result_fails_once_with_the_tools_name(drive, look):
    def huge() -> str:
        return "x" * 5_000_000

    with agent([huge], [call("huge")]) as name:
        run = drive(name)
    assert run.status == "completed"
    assert "'huge'" in look.messages(run)[2][1]


def test_a_tool_past_its_timeout_is_reported_to_the_model(drive, look):
    import asyncio

    async def slow() -> str:
        await asyncio.sleep(30)
        return "late"

    with agent([slow], [call("slow")]) as name:
        run = drive(name, config={"tool_timeout": 0.2})
    assert run.status == "completed"
    assert look.calls(run)[0].error["code"] == "NODE_TIMEOUT_002"
    assert "0.2 seconds" in look.messages(run)[2][1]


def test_a_node_past_its_timeout_ends_the_run(drive):
    def slow() -> str:
        time.sleep(2)
        return "late"

    with agent([slow], [call("slow")]) as name:
        run = drive(name, config={"node_timeout": 0.2})
    assert (run.status, run.error_code) == ("timed_out", "NODE_TIMEOUT_001")


def crash_in(tool_function, drive_name):
    """Bring a run to the point where its worker dies inside the tool: intent there, no outcome."""
    from agentruntime.graph import get_graph
    from agentruntime.graph.messages import open_calls
    from agentruntime.lifecycle.commit import commit_steps
    from agentruntime.lifecycle.lease import Control
    from agentruntime.lifecycle.look import look
    from agentruntime.lifecycle.progress import load_progress
    from agentruntime.lifecycle.step import join_result, take_step
    from agentruntime.lifecycle.turn import Turn

    run = start_run(graph=drive_name, input="hello")
    claim = claim_run(run.pk)
    progress = load_progress(claim.run, claim.lease)
    step, state = join_result(progress, take_step(progress, Control(claim.lease)))
    commit_steps(progress, [step])
    progress.advance(step, state)
    message, calls = open_calls(state.messages)
    look(Turn(progress, "tools", message.id, calls, get_graph(drive_name).tools))
    lose_worker(run)
    return run


def test_a_repeatable_call_of_a_lost_worker_runs_again_with_the_same_key(drive, look):
    keys = []

    def act(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return "done"

    with agent([act], [call("act")]) as name:
        run = crash_in(act, name)
        run = drive(run=run)
    row = look.calls(run)[0]
    assert (run.status, row.attempts, keys) == ("completed", 2, [row.call_key])


@pytest.mark.parametrize(
    ("answer", "ran", "status", "told"),
    [
        ({"outcome": "succeeded", "result": "it was paid"}, 0, "succeeded", "it was paid"),
        (
            {"outcome": "failed", "error": "the card was refused"},
            0,
            "failed",
            "Error: the card was refused",
        ),
        ({"outcome": "retry"}, 1, "succeeded", "paid now"),
    ],
)
def test_a_once_call_of_a_lost_worker_asks_a_person(drive, look, answer, ran, status, told):
    times = []

    @tool(effect="once")
    def pay() -> str:
        times.append(1)
        return "paid now"

    with agent([pay], [call("pay")]) as name:
        run = crash_in(pay, name)
        run = drive(run=run)
        assert (run.status, times, look.calls(run)[0].status) == ("interrupted", [], "unknown")
        question = look.open(run)[0]
        assert question.kind == "outcome"

        resume_run(interrupt_id=question.pk, value=answer)
        run = drive(run=run)
    assert (run.status, len(times), look.calls(run)[0].status) == ("completed", ran, status)
    assert look.messages(run)[2] == ("tool", told)


@pytest.mark.parametrize(
    ("said", "ran", "status"),
    [
        ("the provider's answer", 0, "completed"),
        (NOT_DONE, 1, "completed"),
        (UNKNOWN, 0, "interrupted"),
    ],
)
def test_the_provider_is_asked_before_a_person(drive, look, said, ran, status):
    times, asked = [], []

    def reconcile(arguments, idempotency_key):
        asked.append((arguments, idempotency_key))
        return said

    @tool(effect="once", reconcile=reconcile)
    def pay(amount: int) -> str:
        times.append(1)
        return "paid now"

    with agent([pay], [call("pay", amount=5)]) as name:
        run = crash_in(pay, name)
        run = drive(run=run)
    assert (run.status, len(times), len(asked)) == (status, ran, 1)
    assert asked[0] == ({"amount": 5}, look.calls(run)[0].call_key)


def test_a_transactional_call_and_its_row_are_one_commit(drive, look):
    from django.contrib.auth import get_user_model

    @tool(effect="transactional")
    def sign_up(name: str) -> str:
        get_user_model().objects.create_user(name)
        return name

    @tool(effect="transactional")
    def breaks() -> str:
        get_user_model().objects.create_user("half")
        raise ValueError("after the insert")

    with agent([sign_up, breaks], [call("sign_up", "1", name="ann"), call("breaks", "2")]) as name:
        run = crash_in(sign_up, name)
        run = drive(run=run)
    assert run.status == "completed"
    assert list(get_user_model().objects.values_list("username", flat=True)) == ["ann"]
    assert [(row.status, row.attempts) for row in look.calls(run)] == [
        ("succeeded", 2),
        ("failed", 2),
    ]


def test_a_call_that_kills_its_worker_again_and_again_is_parked(drive, look):
    def act() -> str:
        return "done"

    with agent([act], [call("act")]) as name:
        run = crash_in(act, name)
        ToolExecution.objects.update(attempts=3)
        run = drive(run=run)
        assert (run.status, run.error_code) == ("failed", "CALL_PARKED_001")


def test_retries_are_counted_in_the_row_and_end(drive, look):
    tries = []

    @tool(retries=2, retry_delay=0.0, retry_on=ConnectionError)
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("again")
        return "done"

    with agent([flaky], [call("flaky")]) as name:
        run = drive(name)
    assert (run.status, look.calls(run)[0].attempts, look.messages(run)[2]) == (
        "completed",
        3,
        ("tool", "done"),
    )


def test_once_runs_a_step_at_most_once_over_all_replays(drive, look):
    from agentruntime.graph import interrupt

    told = []

    def ask() -> str:
        once("tell", told.append, "please look")
        return str(interrupt({"q": 1}))

    with agent([ask], [call("ask")]) as name:
        run = drive(name)
        assert (run.status, told) == ("interrupted", ["please look"])
        resume_run(interrupt_id=look.open(run)[0].pk, value=False)
        run = drive(run=run)
    assert (run.status, told, look.messages(run)[2]) == (
        "completed",
        ["please look"],
        ("tool", "False"),
    )


def test_secret_arguments_are_masked_in_events_and_in_what_exceptions_echo(drive, look):
    from agentruntime.models import Event

    def login(user: str, password: str) -> str:
        raise ValueError(f"wrong password {password} for {user}")

    with agent([login], [call("login", user="ann", password="S1-secret")]) as name:
        run = drive(name)
    told = str(list(Event.objects.values_list("data", flat=True)))
    assert "S1-secret" not in told
    assert "S1-secret" not in look.calls(run)[0].error["detail"]


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(InvalidTool, match="'same'"):
        ToolNode([tool(name="same")(lambda: None), tool(name="same")(lambda: None)])


def test_delivering_a_run_three_times_at_once_works_on_it_once(drive):
    ran = []

    def act() -> str:
        ran.append(1)
        time.sleep(0.1)
        return "done"

    with agent([act], [call("act")]) as name:
        run = start_run(graph=name, input="x")
        threads = [threading.Thread(target=execute_and_close, args=(run.pk,)) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert ran == [1]
    assert Run.objects.get().status == "completed"


def execute_and_close(run_id):
    from django.db import connection

    execute(run_id)
    connection.close()
