"""A message that comes while its thread is busy: refused, next, or instead of it."""

import threading
from typing import Any

import pytest
from django.db import connections

from agentruntime.exceptions import InvalidInput
from agentruntime.lifecycle import recover_runs, resume_run, start_run, stop_run
from agentruntime.models import Event, Interrupt, Message, Run, Thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def open_thread(ann, api, runtime) -> Any:
    def make(on_busy: str) -> str:
        body = {"on_busy": on_busy}
        return str(api(ann).post("/api/v1/threads/", body, format="json").json()["id"])

    return make


def history(thread: str) -> list[tuple[str, str]]:
    rows = Message.objects.filter(thread=thread).order_by("ordinal")
    return [(one.role, one.content) for one in rows]


def is_valid(thread: str) -> bool:
    """Each call has exactly one result, right after its message, in order."""
    waiting: list[str] = []
    for row in Message.objects.filter(thread=thread).order_by("ordinal"):
        if row.role == "tool":
            if not waiting or waiting.pop(0) != row.tool_call_id:
                return False
        elif waiting:
            return False
        waiting = waiting or [call["id"] for call in row.tool_calls]
    return not waiting


def test_the_default_is_the_sites(ann, asking, work, open_thread, runtime):
    thread = open_thread("")
    work(start_run(graph=asking, input="tea", thread_id=thread, user=ann).pk)
    runtime(BUSY_POLICY="queue")
    assert start_run(graph=asking, input="milk", thread_id=thread, user=ann).is_in_line


def test_in_line_runs_go_one_after_another(ann, asking, work, open_thread):
    thread = open_thread("queue")
    first = start_run(graph=asking, input="tea", thread_id=thread, user=ann)
    others = [
        start_run(graph=asking, input=text, thread_id=thread, user=ann, idempotency_key=text)
        for text in ("milk", "salt")
    ]
    again = start_run(
        graph=asking, input="milk", thread_id=thread, user=ann, idempotency_key="milk"
    )
    assert again.pk == others[0].pk
    assert [one.status for one in others] == ["queued", "queued"]
    assert work(others[0].pk).status == "queued", "nobody can claim it before its turn"
    for run, text in zip([first, *others], ("tea", "milk", "salt"), strict=True):
        assert work(run.pk).status == "interrupted"
        asked = Interrupt.objects.get(run=run)
        assert asked.payload == {"topic": text}
        resume_run(interrupt_id=asked.pk, value=text, user=ann)
        assert work(run.pk).status == "completed"
    assert [text for role, text in history(thread) if role == "user"] == ["tea", "milk", "salt"]
    assert is_valid(thread)
    numbers = list(
        Event.objects.filter(thread=thread).order_by("seq").values_list("seq", flat=True)
    )
    assert numbers == list(range(1, len(numbers) + 1))


def test_stopping_lets_the_next_one_in_and_one_in_line_can_be_stopped(
    ann, asking, work, open_thread
):
    thread = open_thread("queue")
    first = work(start_run(graph=asking, input="tea", thread_id=thread, user=ann).pk)
    second = start_run(graph=asking, input="milk", thread_id=thread, user=ann)
    third = start_run(graph=asking, input="salt", thread_id=thread, user=ann)
    stop_run(run_id=second.pk)
    assert Interrupt.objects.get(run=first).status == "open", "the first one's question stands"
    stop_run(run_id=first.pk)
    assert work(third.pk).status == "interrupted"
    assert [text for role, text in history(thread) if role == "user"] == ["tea", "salt"]


def test_the_sweep_lets_in_what_was_forgotten(ann, asking, work, open_thread, monkeypatch):
    thread = open_thread("queue")
    first = work(start_run(graph=asking, input="tea", thread_id=thread, user=ann).pk)
    second = start_run(graph=asking, input="milk", thread_id=thread, user=ann)
    monkeypatch.setattr("agentruntime.lifecycle.line._try", lambda thread_id: None)
    stop_run(run_id=first.pk)
    monkeypatch.undo()
    assert Run.objects.get(pk=second.pk).is_in_line
    recover_runs()
    assert not Run.objects.get(pk=second.pk).is_in_line
    assert work(second.pk).status == "interrupted"


def test_cancel_withdraws_the_open_question(ann, api, asking, work, open_thread):
    thread = open_thread("cancel")
    first = work(start_run(graph=asking, input="tea", thread_id=thread, user=ann).pk)
    path = f"/api/v1/threads/{thread}/runs/"
    made = api(ann).post(path, {"graph": asking, "input": "milk"}, format="json")
    assert made.status_code == 201
    assert Run.objects.get(pk=first.pk).status == "stopped"
    assert Interrupt.objects.get(run=first).status == "cancelled"
    assert work(made.json()["id"]).status == "interrupted"
    assert is_valid(thread) is False  # the new question is open
    said = history(thread)
    assert [role for role, _ in said] == ["user", "assistant", "tool", "user", "assistant"]
    assert "withdrawn" in said[2][1]


def test_what_does_not_fit_cancels_nothing(ann, asking, work, open_thread):
    thread = open_thread("cancel")
    first = work(start_run(graph=asking, input="tea", thread_id=thread, user=ann).pk)
    with pytest.raises(InvalidInput):
        start_run(graph=asking, input={"no_such_field": 1}, thread_id=thread, user=ann)
    assert Run.objects.get(pk=first.pk).status == "interrupted"


def test_cancel_of_a_working_run_waits_for_its_end(ann, work, open_thread):
    from agentruntime.graph import Message as Said
    from agentruntime.graph import create_agent, register
    from agentruntime.graph.registry import unregister

    inside, go_on = threading.Event(), threading.Event()

    def model(messages: Any, tools: Any) -> Said:
        if messages[-1].content == "slow":
            inside.set()
            go_on.wait(20)
        return Said.assistant("done")

    register("slow", create_agent(model=model))
    thread = open_thread("cancel")
    try:
        first = start_run(graph="slow", input="slow", thread_id=thread, user=ann)
        worker = threading.Thread(target=lambda: (work(first.pk), connections.close_all()))
        worker.start()
        assert inside.wait(20)
        second = start_run(graph="slow", input="quick", thread_id=thread, user=ann)
        assert second.is_in_line
        go_on.set()
        worker.join(20)
        assert Run.objects.get(pk=first.pk).status in ("stopped", "completed")
        assert work(second.pk).status == "completed"
    finally:
        go_on.set()
        unregister("slow")
    assert history(thread)[-2:] == [("user", "quick"), ("assistant", "done")]


def test_a_repeat_of_an_old_start_cancels_nothing(ann, asking, work, open_thread):
    thread = open_thread("cancel")
    asked = {"graph": asking, "input": "tea", "thread_id": thread, "user": ann}
    first = work(start_run(**asked, idempotency_key="k").pk)
    assert start_run(**asked, idempotency_key="k").pk == first.pk
    assert Run.objects.get(pk=first.pk).status == "interrupted"


def test_the_line_is_not_endless(ann, asking, work, open_thread, runtime):
    from agentruntime.exceptions import ThreadBusy

    runtime(MAX_IN_LINE=2)
    thread = open_thread("queue")
    for text in ("a", "b", "c"):
        start_run(graph=asking, input=text, thread_id=thread, user=ann)
    with pytest.raises(ThreadBusy):
        start_run(graph=asking, input="d", thread_id=thread, user=ann)
    assert Run.objects.count() == 3


def test_deleting_the_thread_takes_the_line_along(ann, api, asking, open_thread):
    thread = open_thread("queue")
    for text in ("a", "b"):
        start_run(graph=asking, input=text, thread_id=thread, user=ann)
    assert api(ann).delete(f"/api/v1/threads/{thread}/").status_code == 204
    assert not Run.objects.exists()
    assert not Thread.objects.exists()


def test_a_message_id_that_is_taken_fails_its_run_and_lets_the_next_one_in(
    ann, asking, work, open_thread
):
    thread = open_thread("queue")
    same = {"role": "user", "content": "tea", "id": "same"}
    first = work(
        start_run(graph=asking, input="salt", thread_id=thread, user=ann).pk,
    )
    queued = [
        start_run(graph=asking, input={"messages": [same]}, thread_id=thread, user=ann)
        for _ in range(2)
    ]
    last = start_run(graph=asking, input="milk", thread_id=thread, user=ann)
    for run in (first, queued[0]):
        assert work(run.pk).status == "interrupted"
        resume_run(interrupt_id=Interrupt.objects.get(run=run).pk, value="yes", user=ann)
        assert work(run.pk).status == "completed"
    taken = Run.objects.get(pk=queued[1].pk)
    assert (taken.status, taken.error_code) == ("failed", "INPUT_001")
    assert "is taken" in taken.error_detail
    assert work(last.pk).status == "interrupted", "the one behind it came in"
