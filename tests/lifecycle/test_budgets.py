"""Budgets: a run stops before the model call that would go beyond one, says so, and can be retried
with a higher one; what it took is kept with it.
"""

from decimal import Decimal

import pytest
from django.test import override_settings

from agentruntime.exceptions import InvalidConfig
from agentruntime.graph import END, START, Message, StateGraph, create_agent, tool
from agentruntime.lifecycle import execution as asking
from agentruntime.lifecycle import resume_run, retry_run, start_run
from agentruntime.models import Run
from tests.agents import call, calls_of, registered


@tool
def ping() -> str:
    """Answer."""
    return "pong"


def counting_model(asked, usage=None):
    """A model that pings three times, then ends; it tells of each time it is asked."""

    def model(messages, tools):
        asked.append(len(messages))
        done = len(calls_of(messages))
        extra = {"usage": usage} if usage else {}
        if done < 3:
            return Message.assistant(tool_calls=[call("ping", f"call_{done}")], extra=extra)
        return Message.assistant("done", extra=extra)

    return model


@pytest.fixture
def asked():
    return []


def usage(asked_tokens, said_tokens, cost):
    return {"input_tokens": asked_tokens, "output_tokens": said_tokens, "cost": cost}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_stops_before_the_model_call_that_is_one_too_many(drive, asked, is_async):
    model = counting_model(asked)

    async def async_model(messages, tools):
        return model(messages, tools)

    chosen = async_model if is_async else model
    with registered(create_agent(model=chosen, tools=[ping])) as name:
        run = drive(name, config={"budget": {"model_calls": 2}})
        assert (run.status, run.error_code) == ("failed", "BUDGET_001")
        assert "2 in model_calls" in run.error_detail
        assert (len(asked), run.model_calls) == (2, 2)
        with pytest.raises(InvalidConfig):
            retry_run(run_id=run.pk, config={"budget": {"model_calls": -1}})
        run = drive(run=retry_run(run_id=run.pk, config={"budget": {"model_calls": 4}}))
    assert (run.status, len(asked), run.model_calls) == ("completed", 4, 4)


def test_tokens_are_reserved_before_the_call_and_settled_after_it(drive, asked):
    model = counting_model(asked, usage(100, 20, "0.5"))
    with registered(create_agent(model=model, tools=[ping])) as name:
        run = drive(name, config={"budget": {"tokens": 1300}})
        assert (run.status, run.error_code) == ("failed", "BUDGET_001")
        # 120 of each call were real; a third one might have taken 1,024 and its prompt.
        assert "in tokens" in run.error_detail
        assert (run.input_tokens, run.output_tokens) == (100 * len(asked), 20 * len(asked))
        run = drive(run=retry_run(run_id=run.pk, config={"budget": {"tokens": 10_000}}))
    assert (run.status, run.input_tokens, run.output_tokens) == ("completed", 400, 80)
    assert run.usage == {
        "model_calls": 4, "input_tokens": 400, "output_tokens": 80, "cost": "2.000000000",
    }  # fmt: skip


def test_money_is_a_decimal_and_bounds_the_run(drive, asked):
    model = counting_model(asked, usage(1, 1, "0.333333333"))
    with registered(create_agent(model=model, tools=[ping])) as name:
        run = drive(name, config={"budget": {"cost": "0.60"}})
        assert (run.error_code, len(asked), run.cost) == ("BUDGET_001", 2, Decimal("0.666666666"))
        assert "0.60 in cost" in run.error_detail
        run = drive(run=retry_run(run_id=run.pk, config={"budget": {"cost": 5}}))
    assert (run.status, run.cost) == ("completed", Decimal("1.333333332"))


def test_a_retry_changes_only_the_limits_that_it_names(drive, asked):
    with registered(create_agent(model=counting_model(asked), tools=[ping])) as name:
        run = drive(name, config={"budget": {"model_calls": 1, "tokens": 1_000_000}})
        run = retry_run(run_id=run.pk, config={"budget": {"model_calls": 2}})
        assert run.config["budget"] == {"model_calls": 2, "tokens": 1_000_000}
        run = drive(run=retry_run_after(drive, run))
    assert run.status == "completed"


def retry_run_after(drive, run):
    assert drive(run=run).error_code == "BUDGET_001"
    return retry_run(run_id=run.pk, config={"budget": {"model_calls": None}})


def test_the_settings_hold_where_a_run_says_nothing(drive, asked, settings):
    held = {**settings.AGENTRUNTIME, "BUDGET": {"model_calls": 1}}
    one = create_agent(model=counting_model(asked), tools=[ping])
    with override_settings(AGENTRUNTIME=held), registered(one) as name:
        assert drive(name).error_code == "BUDGET_001"
        assert drive(name, config={"budget": {"model_calls": 9}}).status == "completed"


@pytest.mark.parametrize(
    "told",
    [
        usage(10**18, 5, None),
        usage(10, 10**400, None),
        usage(-5, -3, None),
        usage("many", 5, None),
        usage(0, 0, "1250000000000000000"),
        usage(0, 0, "NaN"),
        usage(0, 0, "-1000"),
    ],
)
def test_usage_that_cannot_be_is_not_believed(drive, asked, told):
    with registered(create_agent(model=counting_model(asked, told), tools=[ping])) as name:
        run = drive(name)
    assert run.status == "completed"
    assert Run.objects.get(pk=run.pk).cost == 0  # and the row can be read
    assert 0 <= run.input_tokens < 10_000
    assert bool(run.input_tokens) == (told["input_tokens"] != 0)


def test_a_call_without_usage_counts_by_an_estimate(drive, asked):
    with registered(create_agent(model=counting_model(asked), tools=[ping])) as name:
        free = drive(name)
        bound = drive(name, config={"budget": {"tokens": 100_000}})
    assert (free.model_calls, free.input_tokens) == (0, 0)
    assert bound.model_calls == 4
    assert bound.input_tokens > 0
    assert 0 < bound.output_tokens < 1024


def test_what_was_given_up_stays_spent(drive, asked):
    class GivenUp(BaseException):
        """As a cancelled call ends; a killed worker says even less."""

    def model(messages, tools):
        if not asked:
            asked.append(1)
            raise GivenUp
        return Message.assistant("hi", extra={"usage": usage(10, 5, "0.1")})

    with registered(create_agent(model=model)) as name:
        run = drive(name, config={"budget": {"tokens": 5000}})
        assert (run.status, run.model_calls, run.output_tokens) == ("failed", 1, 1024)
        run = drive(run=retry_run(run_id=run.pk))
    assert (run.status, run.model_calls, run.output_tokens) == ("completed", 2, 1024 + 5)


def test_a_call_that_fails_gives_its_reservation_back(drive, asked):
    def model(messages, tools):
        raise OSError("no line")

    with registered(create_agent(model=model)) as name:
        run = drive(name, config={"budget": {"tokens": 5000}})
    assert (run.error_code, run.model_calls, run.output_tokens) == ("NODE_FAILED_001", 1, 0)


def test_working_time_counts_and_waiting_for_people_does_not(drive, look):
    now = [0.0]

    def think(state):
        now[0] += 40

    def ask(state):
        from agentruntime.graph import interrupt

        interrupt("go on?")

    graph = StateGraph()
    for name, node in (("think", think), ("ask", ask), ("again", think), ("end", think)):
        graph.add_node(name, node)
    graph.add_edge(START, "think").add_edge("think", "ask").add_edge("ask", "again")
    graph.add_edge("again", "end").add_edge("end", END)
    with registered(graph) as name, pytest.MonkeyPatch.context() as patch:
        from agentruntime.lifecycle import budget

        patch.setattr(budget, "seconds_now", lambda: now[0])
        run = drive(name, config={"budget": {"seconds": 60}})
        assert (run.status, run.working_seconds) == ("interrupted", 40)
        now[0] += 10_000  # nobody works on it over the weekend
        resume_run(interrupt_id=look.open(run)[0].pk, value=True)
        run = drive(run=run)
        assert (run.status, run.error_code, run.working_seconds) == ("failed", "BUDGET_001", 80)
        assert "60.0 in seconds" in run.error_detail
        run = drive(run=retry_run(run_id=run.pk, config={"budget": {"seconds": 600}}))
    assert (run.status, run.working_seconds) == ("completed", 120)


def test_side_by_side_calls_never_reserve_more_than_there_is(drive):
    """Two model calls of one node: each holds its reservation while the other asks for its own."""
    refused = []

    async def node(state, ctx):
        import asyncio

        from agentruntime.exceptions import BudgetExceeded

        async def one():
            try:
                async with ctx.model_call([Message.user("x")], []) as held:
                    await asyncio.sleep(0.05)
                    held.answered(Message.assistant("y", extra={"usage": usage(1, 1, "0")}))
            except BudgetExceeded as error:
                refused.append(error.what)

        await asyncio.gather(one(), one(), one())

    graph = StateGraph()
    graph.add_node("node", node)
    graph.add_edge(START, "node").add_edge("node", END)
    with registered(graph) as name:
        run = drive(name, config={"budget": {"tokens": 2 * 1024 + 100}})
    assert (run.status, refused) == ("completed", ["tokens"])
    assert (run.model_calls, run.input_tokens, run.output_tokens) == (2, 2, 2)


def provider_answers(monkeypatch, **usage_told):
    async def answer(model, messages, tools, **_):
        return Message.assistant("hello", extra={"usage": usage_told})

    monkeypatch.setattr(asking, "ask_model", answer)


def test_the_price_of_a_known_model_is_reserved(drive, monkeypatch):
    provider_answers(monkeypatch, input_tokens=1000, output_tokens=100)
    with registered(create_agent(model="openai:gpt-4o")) as name:
        poor = drive(name, config={"budget": {"cost": "0.001"}})
        rich = drive(name, config={"budget": {"cost": "1"}})
        plain = drive(name)
    assert (poor.error_code, poor.model_calls, poor.cost) == ("BUDGET_001", 0, 0)
    assert (rich.status, rich.model_calls, rich.input_tokens) == ("completed", 1, 1000)
    assert rich.cost == plain.cost == Decimal("0.0035")  # 2.50 and 10 dollars per million
    assert (plain.model_calls, plain.output_tokens) == (1, 100)


def test_a_budget_in_money_refuses_a_model_without_a_price(drive, monkeypatch):
    provider_answers(monkeypatch, input_tokens=1000, output_tokens=100)
    with registered(create_agent(model="openai:in-house-7b")) as name:
        assert drive(name, config={"budget": {"cost": "5"}}).error_code == "BUDGET_002"
        assert drive(name, config={"budget": {"tokens": 50_000}}).status == "completed"


@pytest.mark.parametrize(
    "wrong",
    [
        7, [], {"euros": 1}, {"tokens": 1.5}, {"tokens": True}, {"tokens": "1"}, {"cost": "much"},
        {"cost": float("nan")}, {"cost": -1}, {"seconds": "soon"}, {"model_calls": 2**60},
    ],
)  # fmt: skip
def test_a_budget_that_cannot_be_meant_is_refused(wrong, asked):
    one = create_agent(model=counting_model(asked), tools=[ping])
    with registered(one) as name, pytest.raises(InvalidConfig):
        start_run(graph=name, input="x", config={"budget": wrong})
    assert Run.objects.count() == 0
