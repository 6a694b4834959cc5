"""Long jobs: started once, waited for without a worker, whatever happens meanwhile."""

import threading

import pytest

from agentruntime.graph import Pending, tool
from agentruntime.lifecycle import recover_runs, retry_run, stop_run
from agentruntime.lifecycle.callbacks import take_callback
from agentruntime.lifecycle.recover import sweep
from agentruntime.models import Run, ToolExecution
from tests.agents import agent, call
from tests.tools import farm


def token_of(address):
    return address.rstrip("/").rpartition("/")[2]


def test_a_job_is_started_once_and_waited_for_across_processes(
    drive_elsewhere, make_due, look, folder
):
    run = drive_elsewhere("farm")
    assert (run.status, run.lease_expires_at) == ("queued", None)  # nobody holds it
    row = look.calls(run)[0]
    assert (row.status, row.outside["handle"]) == ("running", {"job": "cow"})
    assert 55 < (run.wake_at - row.started_at).total_seconds() <= 62
    assert sweep() == []
    for _ in range(7):  # more often than a run may be claimed in vain
        make_due(run)
        assert sweep() == [run.pk]
        run = drive_elsewhere(run=run)
        assert run.status == "queued"
        assert sweep() == []
    farm.finish({"picture": "cow.png"})
    make_due(run)
    run = drive_elsewhere(run=run)
    assert run.status == "completed"
    assert look.messages(run)[-1] == ("assistant", '{"picture": "cow.png"}')
    assert (farm.lines("jobs"), len(farm.lines("polls"))) == (["cow"], 8)
    assert look.calls(run)[0].attempts == 1


def test_a_claim_before_the_time_asks_nobody(drive, make_due, look):
    run = drive("farm")
    Run.objects.filter(pk=run.pk).update(wake_at=None)
    run = drive(run=run)
    assert (run.status, farm.lines("polls")) == ("queued", [])
    assert run.wake_at is not None


@pytest.mark.parametrize("wait", ["poll", "async"])
def test_what_a_poll_raises_has_become_of_the_job(drive, make_due, look, wait):
    with agent([farm.render], [call("render", scene="cow", wait=wait)]) as name:
        run = drive(name)
        farm.finish("broken")
        make_due(run)
        run = drive(run=run)
    assert (run.status, look.calls(run)[0].status) == ("completed", "failed")
    assert look.messages(run)[-1][1] == "Error: RuntimeError: the scene has no camera"


def test_a_poll_without_a_line_is_asked_again(drive, make_due, look):
    run = drive("farm")
    farm.finish("down")
    make_due(run)
    run = drive(run=run)
    assert (run.status, look.calls(run)[0].status) == ("queued", "running")
    make_due(run, deadline=True)
    run = drive(run=run)
    assert run.status == "completed"
    said = look.messages(run)[-1][1]
    assert "did not end in time; whether it still takes effect is not known" in said
    assert "the farm does not answer" in said
    assert look.calls(run)[0].error["code"] == "JOB_OVERDUE_001"


def test_the_last_question_is_asked_after_the_deadline(drive, make_due, look):
    run = drive("farm")
    farm.finish("late.png")
    make_due(run, deadline=True)
    assert drive(run=run).status == "completed"
    assert look.calls(run)[0].result == "late.png"


def test_a_job_may_move_and_keeps_its_deadline(drive, make_due, look):
    run = drive("farm")
    until = look.calls(run)[0].outside["until"]
    farm.finish({"moved": "ox"})
    make_due(run)
    run = drive(run=run)
    row = look.calls(run)[0]
    assert (row.outside["handle"], row.outside["until"]) == ({"job": "ox"}, until)
    farm.finish("ox.png")
    make_due(run)
    assert drive(run=run).status == "completed"
    assert farm.lines("polls") == ["cow", "ox"]


def test_a_callback_settles_the_call_once(drive_elsewhere, look, folder):
    run = drive_elsewhere("farm-called")
    assert run.status == "queued"
    token = token_of((folder / "address").read_text())
    assert take_callback(token, {"result": {"picture": "cow.png"}}).status == "succeeded"
    assert sweep() == [run.pk]
    assert take_callback(token, {"result": "another"}).result == {"picture": "cow.png"}
    assert take_callback(token, {"error": "no"}).status == "succeeded"
    run = drive_elsewhere(run=run)
    assert (run.status, farm.lines("jobs")) == ("completed", ["cow"])
    assert look.messages(run)[-1][1] == '{"picture": "cow.png"}'


def test_the_address_of_a_callback_over_http(drive, look, folder, client):
    run = drive("farm-called")
    address = (folder / "address").read_text()
    assert address.startswith("/api/v1/callbacks/")

    def post(where, body):
        return client.post(where, body, content_type="application/json")

    token = token_of(address)
    for wrong in (token[:-1], token[:-1] + "B", "7", f"1.{'x' * 43}", token.replace(".", ":")):
        assert post(f"/api/v1/callbacks/{wrong}/", {"result": 1}).status_code == 404
    for body in ([], "x", None):
        assert post(address, body).status_code == 400
    for body in ({}, {"result": 1, "error": "x"}, {"error": ""}, {"error": 5}):
        answer = post(address, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "CALLBACK_002")
    assert client.get(address).status_code == 405
    assert look.calls(run)[0].status == "running"
    answer = post(address, {"error": "out of paint"})
    assert (answer.status_code, answer.json()) == (200, {"status": "failed"})
    assert post(address, {"result": 1}).json() == {"status": "failed"}
    assert look.messages(drive(run=run))[-1][1] == "Error: out of paint"


def test_a_result_beyond_the_limit_is_refused_and_the_call_waits_on(drive, look, folder):
    from agentruntime.exceptions import CallbackRefused

    run = drive("farm-called")
    token = token_of((folder / "address").read_text())
    with pytest.raises(CallbackRefused, match="1,048,576"):
        take_callback(token, {"result": "x" * 2_000_000})
    assert look.calls(run)[0].status == "running"


def test_a_callback_while_the_tool_still_works_is_its_result(drive, look):
    @tool
    def quick(ctx) -> Pending:
        """The provider is faster than the tool."""
        worker = threading.Thread(
            target=lambda: take_callback(token_of(ctx.callback_url()), {"result": "quick"})
        )
        worker.start()
        worker.join()
        return Pending("job")

    with agent([quick], [call("quick")]) as name:
        run = drive(name)
    assert (run.status, look.messages(run)[-1][1]) == ("completed", "quick")


def test_a_callback_between_the_look_and_the_pause_is_not_slept_over(drive, look, monkeypatch):
    from agentruntime.lifecycle import loop

    asleep = loop.give_back

    def called_back_first(lease, *args, **more):
        row = ToolExecution.objects.get(run=lease.run_id)
        if row.status == "running":
            take_callback(token_of(farm.folder().joinpath("address").read_text()), {"result": "x"})
        return asleep(lease, *args, **more)

    monkeypatch.setattr(loop, "give_back", called_back_first)
    run = drive("farm-called")
    assert (run.status, run.wake_at) == ("queued", None)
    assert drive(run=run).status == "completed"


def test_a_stopped_run_tells_the_truth_and_a_late_callback_is_kept(drive, look, folder):
    run = drive("farm-called")
    run = stop_run(run_id=run.pk)
    assert run.status == "stopped"
    row = look.calls(run)[0]
    assert (row.status, row.outside["handle"]) == ("unknown", {"job": "cow"})
    assert "had been started and its outcome is not known" in look.messages(run)[-1][1]
    take_callback(token_of((folder / "address").read_text()), {"result": "cow.png"})
    row.refresh_from_db()
    assert (row.status, row.result) == ("succeeded", "cow.png")


def test_an_overdue_callback_is_still_the_truth_about_the_world(drive, look, folder, make_due):
    run = drive("farm-called")
    make_due(run, deadline=True)
    run = drive(run=run)
    assert (run.status, look.calls(run)[0].status) == ("completed", "failed")
    take_callback(token_of((folder / "address").read_text()), {"result": "cow.png"})
    assert look.calls(run)[0].status == "succeeded"


def test_a_job_goes_on_beside_a_question(drive, make_due, look, decide):
    @tool(approval=True)
    def send() -> str:
        """Send it."""
        return "sent"

    turn = [call("render", "a", scene="cow"), call("send", "b")]
    with agent([farm.render, send], turn) as name:
        run = drive(name)
        assert (run.status, len(look.open(run))) == ("queued", 1)
        decide(run)
        run = drive(run=run)
        assert [row.status for row in look.calls(run)] == ["running", "succeeded"]
        farm.finish("cow.png")
        make_due(run)
        run = drive(run=run)
    assert (run.status, farm.lines("jobs")) == ("completed", ["cow"])
    assert look.messages(run)[-1][1] == "cow.png | sent"


def test_a_job_that_begins_beside_a_call_that_ends_is_kept(drive, make_due, look, told):
    @tool
    def look_up() -> str:
        """Look it up."""
        return "found"

    turn = [call("render", "a", scene="cow"), call("look_up", "b")]
    with agent([farm.render, look_up], turn) as name:
        run = drive(name)
        job, found = look.calls(run)
        assert (job.status, job.outside["handle"], found.status) == (
            "running", {"job": "cow"}, "succeeded",
        )  # fmt: skip
        farm.finish("cow.png")
        make_due(run)
        run = drive(run=run)
    assert (run.status, farm.lines("jobs")) == ("completed", ["cow"])
    assert not [event for level, event in told if level == "error"]


def test_after_the_fix_a_failed_run_goes_on_with_its_job(drive, make_due, look):
    run = drive("farm")
    kept = farm.ask_farm
    del farm.ask_farm
    try:
        make_due(run)
        run = drive(run=run)
    finally:
        farm.ask_farm = kept
    assert run.error_code == "GRAPH_CHANGED_001"
    farm.finish("cow.png")
    run = drive(run=retry_run(run_id=run.pk))
    assert (run.status, farm.lines("jobs")) == ("completed", ["cow"])


def test_a_poll_that_kills_its_worker_parks_the_run(drive, make_due, look):
    from agentruntime.models import DatabaseTime

    run = drive("farm")
    for _ in range(5):
        claims = Run.objects.get(pk=run.pk).attempts
        Run.objects.filter(pk=run.pk).update(
            status="running", lease_expires_at=DatabaseTime(-1), attempts=claims + 1, wake_at=None
        )
    run = drive(run=run)
    assert (run.status, run.error_code) == ("failed", "RUN_PARKED_001")
    assert farm.lines("jobs") == ["cow"]


def test_what_cannot_be_waited_for_is_said_and_never_started_again(drive, look):
    started = []

    @tool(effect="once")
    def local() -> Pending:
        """Start."""
        started.append(1)
        return Pending("job", poll=lambda handle: None)

    with agent([local], [call("local")]) as name:
        run = drive(name)
    assert (run.status, started) == ("completed", [1])
    assert look.calls(run)[0].error["code"] == "TOOL_RESULT_001"
    assert "no other process could find it" in look.messages(run)[-1][1]


def test_a_job_without_a_deadline_waits_for_ever(drive, look):
    with agent([farm.render], [call("render", scene="cow", wait="for ever")]) as name:
        run = drive(name)
    row = look.calls(run)[0]
    assert (run.status, row.outside["until"]) == ("queued", None)
    assert recover_runs() == []


def test_a_job_with_a_wrong_time_has_been_started_and_is_not_started_again(drive, look):
    started = []

    @tool
    def render() -> Pending:
        """Render."""
        started.append(1)
        return Pending("cow", poll=farm.ask_farm, every=float("nan"))

    with agent([render], [call("render")]) as name:
        run = drive(name)
    assert (run.status, started, look.calls(run)[0].status) == ("completed", [1], "succeeded")
    assert "numbers of seconds above zero" in look.messages(run)[-1][1]
