"""The loop: steps, routes, limits, and errors that have a name."""

import operator
from decimal import Decimal
from typing import Annotated, Any

import pytest

from agentruntime.graph import END, START, Command, Message, State, StateGraph, create_agent
from agentruntime.lifecycle import recover, retry_run, start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Checkpoint, Run, Thread
from tests.agents import registered


class Notes(State):
    notes: Annotated[list[str], operator.add] = []
    total: Decimal = Decimal(0)
    anything: Any = None


def line(*nodes, state=Notes):
    """A graph of nodes in a row."""
    graph = StateGraph(state)
    previous = START
    for n, node in enumerate(nodes):
        graph.add_node(f"n{n}", node)
        graph.add_edge(previous, f"n{n}")
        previous = f"n{n}"
    return graph.add_edge(previous, END)


def test_each_step_is_a_checkpoint_that_names_the_next_node(drive):
    async def second(state):
        return {"notes": ["b"], "total": state.total + 1}

    with registered(line(lambda state: {"notes": ["a"]}, second)) as name:
        run = drive(name)

    assert run.status == "completed"
    rows = Checkpoint.objects.filter(thread=run.thread_id).order_by("version")
    assert [(row.version, row.node, row.next_node) for row in rows] == [
        (1, "", "n0"),
        (2, "n0", "n1"),
        (3, "n1", END),
    ]
    assert rows.last().state == {"notes": ["a", "b"], "total": "1", "anything": None}
    assert Thread.objects.get().head_version == 3


def test_a_node_may_return_what_the_contract_names(drive):
    returned = [
        None,
        {"notes": ["x"]},
        Message.assistant("one"),
        [Message.assistant("two")],
        Command(update={"notes": ["y"]}, goto="n6"),
        lambda state: {"notes": ["never"]},
        lambda state: state.model_copy(update={"notes": [*state.notes, "z"]}),
    ]
    graph = line(*[one if callable(one) else (lambda state, one=one: one) for one in returned])
    del graph.edges["n4"]
    graph.add_edge("n4", "n5")
    with registered(graph) as name:
        run = drive(name)

    assert (run.status, run.error_detail) == ("completed", "")
    head = Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()
    assert head.state["notes"] == ["x", "y", "z"]
    assert head.message_count == 3


@pytest.mark.parametrize(
    ("node", "code", "named"),
    [
        (lambda state: {"nope": 1}, "STATE_FIELD_001", "nope"),
        (lambda state: {"total": "no number"}, "STATE_FIELD_002", "total"),
        (lambda state: {"anything": {(1, 2): 3}}, "STATE_FIELD_003", "anything"),
        (lambda state: {"anything": float("nan")}, "STATE_FIELD_003", "anything"),
        (lambda state: {"anything": Decimal("1.0")}, "STATE_FIELD_003", "anything"),
        (lambda state: {"anything": "a\x00b"}, "STATE_FIELD_003", "anything"),
        (lambda state: 5, "STEP_002", "int"),
        (lambda state: Command(goto="nowhere"), "ROUTE_002", "nowhere"),
        (lambda state: 1 / 0, "NODE_FAILED_001", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_carried_out_fails_the_run_by_name(drive, node, code, named):
    reached = []
    with registered(line(node, lambda state: reached.append(1))) as name:
        run = drive(name)

    assert (run.status, run.error_code) == ("failed", code)
    assert named in run.error_detail
    assert reached == []
    assert Thread.objects.get().head_version == 1


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_route_that_raises_fails_its_run(drive, kind):
    def route(state):
        raise kind("no way")

    graph = StateGraph(Notes).add_node("a", lambda state: {"notes": ["a"]})
    graph.add_edge(START, "a").add_conditional_edges("a", route, {"on": END})
    with registered(graph) as name:
        run = drive(name)
    assert (run.status, run.error_code) == ("failed", "NODE_FAILED_001")
    assert f"{kind.__name__} in its route" in run.error_detail


def test_an_unmatched_route_is_an_error_not_a_silent_end(drive):
    graph = StateGraph(Notes)
    graph.add_node("a", lambda state: None)
    graph.add_edge(START, "a").add_conditional_edges("a", lambda state: "left", {"right": END})
    with registered(graph) as name:
        run = drive(name)

    assert (run.status, run.error_code) == ("failed", "ROUTE_001")
    assert "'left'" in run.error_detail
    assert "'right'" in run.error_detail


def test_the_recursion_limit_counts_nodes_and_stops_before_the_next_one(drive):
    done = []
    with registered(line(*[lambda state, n=n: done.append(n) for n in range(5)])) as name:
        run = drive(name, config={"recursion_limit": 3})
        assert (run.status, run.error_code, done) == ("failed", "RECURSION_LIMIT_001", [0, 1, 2])

        retry_run(run_id=run.pk, config={"recursion_limit": 5})
        run = drive(run=run)
    assert (run.status, done) == ("completed", [0, 1, 2, 3, 4])


def test_a_limit_of_exactly_the_steps_is_enough(drive):
    with registered(line(lambda state: None, lambda state: None)) as name:
        assert drive(name, config={"recursion_limit": 2}).status == "completed"


def test_a_failed_run_goes_on_from_its_last_checkpoint(drive):
    entered, broken = [], [True]

    def second(state):
        entered.append("second")
        if broken:
            raise ValueError("not yet")

    with registered(line(lambda state: entered.append("first"), second)) as name:
        run = drive(name)
        assert run.status == "failed"
        broken.clear()
        retry_run(run_id=run.pk)
        run = drive(run=run)

    assert run.status == "completed"
    assert entered == ["first", "second", "second"]
    assert run.error is None


def test_what_a_node_does_to_its_state_in_place_does_not_leak(drive):
    with registered(
        line(lambda state: state.notes.append("leak"), lambda state: {"notes": ["kept"]})
    ) as name:
        run = drive(name)
    head = Checkpoint.objects.filter(thread=run.thread_id).order_by("-version").first()
    assert head.state["notes"] == ["kept"]


def test_a_second_run_on_the_thread_goes_on_with_its_state(drive):
    with registered(line(lambda state: {"notes": [f"saw {len(state.messages)}"]})) as name:
        first = drive(name)
        second = drive(name, input="again", thread_id=first.thread_id)
    head = Checkpoint.objects.filter(thread=second.thread_id).order_by("-version").first()
    assert head.state["notes"] == ["saw 1", "saw 2"]
    versions = Checkpoint.objects.filter(thread=second.thread_id).order_by("version")
    assert list(versions.values_list("version", flat=True)) == [1, 2, 3, 4]


def test_with_durability_off_the_database_is_written_only_at_the_end(
    drive, django_assert_num_queries
):
    seen = []

    def look(state):
        seen.append(Thread.objects.get().head_version)

    with registered(line(look, look, look)) as name:
        run = drive(name, config={"durable_checkpoint_every_step": False})
    assert run.status == "completed"
    assert seen == [1, 1, 1]
    assert Thread.objects.get().head_version == 4


def test_a_run_whose_next_node_is_gone_stops_with_a_name_and_goes_on_after_the_fix(drive):
    with registered(line(lambda state: None)) as name:
        run = start_run(graph=name, input="x")
    other = StateGraph(Notes)
    other.add_node("renamed", lambda state: None)
    other.add_edge(START, "renamed").add_edge("renamed", END)
    with registered(other) as name:
        run = drive(run=run)
    assert (run.status, run.error_code) == ("failed", "GRAPH_CHANGED_001")
    assert "'n0'" in run.error_detail
    with registered(line(lambda state: None)) as name:
        retry_run(run_id=run.pk)
        assert drive(run=run).status == "completed"


def test_a_model_that_is_async_or_an_object_works_as_well(drive):
    class Model:
        async def __call__(self, messages, tools):
            return Message.assistant(f"{len(messages)} messages")

    with registered(create_agent(model=Model(), instructions="Be short.")) as name:
        run = drive(name)
    assert run.status == "completed"
    assert Run.objects.get().thread.messages.get(ordinal=2).content == "2 messages"


def test_executing_what_is_not_there_does_nothing():
    import uuid

    execute(uuid.uuid4())


def test_what_a_newer_release_has_stored_is_refused_once_and_goes_on_where_it_is_known(drive):
    ran = []
    graph = line(lambda state: ran.append(1))
    with registered(graph) as name:
        run = start_run(graph=name, input="x")
        stored = Checkpoint.objects.get(thread=run.thread_id)
        newer = {**stored.state, "since_tomorrow": 1}
        Checkpoint.objects.filter(pk=stored.pk).update(state=newer)
        run = drive(run=run)
        assert (run.status, run.error_code, ran) == ("failed", "GRAPH_CHANGED_001", [])
        assert recover.sweep() == []  # it is not claimed again and again
        assert Checkpoint.objects.get(pk=stored.pk).state == newer
        Checkpoint.objects.filter(pk=stored.pk).update(state=stored.state)
        retry_run(run_id=run.pk)
        assert drive(run=run).status == "completed"
