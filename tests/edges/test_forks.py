"""A fork begins where its checkpoint was, asks anew, and leaves the old thread alone."""

from typing import Any

import pytest
from django.apps import apps

from agentruntime.graph import Message as Said
from agentruntime.graph import ToolCall, create_agent, register, tool
from agentruntime.graph.registry import unregister
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Checkpoint, Event, Interrupt, Message, Run, Thread, ToolExecution

pytestmark = pytest.mark.django_db(transaction=True)


def rows_of(thread: Any) -> list[Any]:
    kinds = (Run, Checkpoint, Message, ToolExecution, Interrupt, Event)
    found = [list(kind.objects.filter(thread=thread).order_by("pk").values()) for kind in kinds]
    return [Thread.objects.filter(pk=thread).values().get(), *found]


@pytest.fixture
def answered(ann, asking, work) -> Run:
    """A run that asked one question, was answered, and ended."""
    run = work(start_run(graph=asking, input="tea", user=ann).pk)
    resume_run(interrupt_id=Interrupt.objects.get().pk, value="yes", user=ann)
    return work(run.pk)


def test_the_question_is_asked_again_with_a_new_id(ann, api, answered, work):
    assert answered.status == "completed"
    before = rows_of(answered.thread_id)
    version = Checkpoint.objects.get(thread=answered.thread_id, next_node="tools").version
    path = f"/api/v1/threads/{answered.thread_id}/fork/"
    made = api(ann).post(path, {"version": version}, format="json")
    assert made.status_code == 201
    fork = Run.objects.get(thread_id=made.json()["id"])
    assert work(fork.pk).status == "interrupted"
    asked = Interrupt.objects.get(thread=fork.thread_id)
    assert asked.pk != Interrupt.objects.get(thread=answered.thread_id).pk
    assert (asked.status, asked.answer) == ("open", None)
    resume_run(interrupt_id=asked.pk, value="no", user=ann)
    assert work(fork.pk).status == "completed"
    said = list(Message.objects.filter(thread=fork.thread_id).order_by("ordinal"))
    assert [one.ordinal for one in said] == [1, 2, 3, 4]
    assert "no" in said[-1].content
    assert rows_of(answered.thread_id) == before


def test_a_decision_does_not_travel(ann, person, api, shop, work):
    run = work(start_run(graph="support", input="Order 1042 is broken, refund it", user=ann).pk)
    approvals = apps.get_model("approvals", "Approval").objects
    first = approvals.get()
    version = Checkpoint.objects.filter(thread=run.thread_id).latest("version").version
    made = api(ann).post(
        f"/api/v1/threads/{run.thread_id}/fork/", {"version": version}, format="json"
    )
    fork = Run.objects.get(thread_id=made.json()["id"])
    assert work(fork.pk).status == "interrupted"
    second = approvals.exclude(pk=first.pk).get()
    assert (first.status, second.status) == ("pending", "pending")
    assert first.digest != second.digest, "a digest covers its thread and call"


def test_what_was_done_under_the_old_keys_is_not_the_forks(ann, api, work, runtime):
    keys: list[str] = []

    @tool
    def act(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return "done"

    def model(messages: Any, tools: Any) -> Said:
        if messages[-1].role == "tool":
            return Said.assistant("finished")
        return Said.assistant(tool_calls=[ToolCall(id="call_1", name="act")])

    register("acting", create_agent(model=model, tools=[act]))
    try:
        run = work(start_run(graph="acting", input="go", user=ann).pk)
        client = api(ann)
        path = f"/api/v1/threads/{run.thread_id}/fork/"
        before = client.post(path, {"version": 2}, format="json").json()
        after = client.post(path, {"version": 3}, format="json").json()
        for made in (before, after):
            assert work(Run.objects.get(thread_id=made["id"]).pk).status == "completed"
    finally:
        unregister("acting")
    assert len(keys) == 2, "the fork after the call has its result in its history"
    assert keys[0] != keys[1]


def test_a_fork_of_the_end_is_a_thread_that_can_go_on(ann, api, answered, work, asking):
    head = Thread.objects.get(pk=answered.thread_id).head_version
    made = api(ann).post(
        f"/api/v1/threads/{answered.thread_id}/fork/", {"version": head}, format="json"
    )
    assert made.json()["active_run"] is None
    run = start_run(graph=asking, input="milk", thread_id=made.json()["id"], user=ann)
    assert work(run.pk).status == "interrupted"
    versions = Checkpoint.objects.filter(thread=made.json()["id"]).values_list("version", flat=True)
    assert sorted(versions) == list(range(1, len(versions) + 1))


@pytest.mark.parametrize("version", [0, 99, -1, 10**12, "x", None, True])
def test_a_version_that_is_not_there(ann, api, answered, version):
    answer = api(ann).post(
        f"/api/v1/threads/{answered.thread_id}/fork/", {"version": version}, format="json"
    )
    assert answer.status_code in (400, 404)
    assert Thread.objects.count() == 1


def test_a_fork_of_parallel_branches_begins_them_again(ann, api, work, runtime):
    from agentruntime.graph import END, START, Send, StateGraph
    from agentruntime.models import BranchStep

    graph = StateGraph()
    graph.add_node("each", lambda state: Said.assistant("one"))
    graph.add_conditional_edges(START, lambda state: [Send("each", {}), Send("each", {})])
    graph.add_edge("each", END)
    register("branching", graph)
    try:
        run = work(start_run(graph="branching", input="go", user=ann).pk)
        assert run.status == "completed", run.error
        path = f"/api/v1/threads/{run.thread_id}/fork/"
        made = api(ann).post(path, {"version": 1}, format="json").json()
        fork = work(Run.objects.get(thread_id=made["id"]).pk)
        assert fork.status == "completed", fork.error
    finally:
        unregister("branching")
    counts = [
        BranchStep.objects.filter(thread=one).count() for one in (run.thread_id, fork.thread_id)
    ]
    assert counts[0] == counts[1] > 0
