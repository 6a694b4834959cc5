"""Tools that the client runs: handed over as an interrupt, ended by what is sent back."""

import pytest
from pydantic import BaseModel

from agentruntime.exceptions import AlreadyAnswered, InvalidAnswer, InvalidTool
from agentruntime.graph import ApprovalRule, client_tool, tool
from agentruntime.lifecycle import resume_run, retry_run, stop_run
from agentruntime.lifecycle.recover import expire_questions
from agentruntime.models import DatabaseTime, Interrupt, ToolExecution
from tests.agents import agent, call
from tests.tools.farm import Colour, Question, pick

RED = {"name": "red"}


def test_a_call_waits_for_the_client_across_processes(drive_elsewhere, look):
    run = drive_elsewhere("picker")
    assert (run.status, run.lease_expires_at) == ("interrupted", None)
    handed = look.open(run)[0]
    assert (handed.kind, handed.payload["tool"]) == ("client", "pick_colour")
    assert handed.payload["arguments"] == {"among": ["red", "blue"]}
    assert handed.response_schema["required"] == ["name"]
    assert look.calls(run)[0].status == "interrupted"
    resume_run(interrupt_id=handed.pk, value=RED)
    run = drive_elsewhere(run=run)
    assert run.status == "completed"
    assert look.messages(run)[-1] == ("assistant", '{"name": "red"}')
    row = look.calls(run)[0]
    assert (row.status, row.result, row.attempts) == ("succeeded", RED, 1)
    with pytest.raises(AlreadyAnswered):
        resume_run(interrupt_id=handed.pk, value=RED)


@pytest.mark.parametrize(
    "wrong", [None, "red", {}, {"name": 5}, {"error": 5}, {"error": "x", "a": 1}]
)
def test_a_result_that_does_not_fit_is_refused_and_the_call_waits_on(drive, look, wrong):
    run = drive("picker")
    with pytest.raises(InvalidAnswer):
        resume_run(interrupt_id=look.open(run)[0].pk, value=wrong)
    assert len(look.open(run)) == 1


def test_a_result_beyond_the_limit_is_refused(drive, look):
    run = drive("picker")
    with pytest.raises(InvalidAnswer, match="1,048,576"):
        resume_run(interrupt_id=look.open(run)[0].pk, value={"name": "x" * 1_100_000})


def test_the_client_may_say_that_it_failed(drive, look):
    run = drive("picker")
    resume_run(interrupt_id=look.open(run)[0].pk, value={"error": "the tab was closed"})
    run = drive(run=run)
    assert look.messages(run)[-1][1] == "Error: the client said: the tab was closed"
    assert look.calls(run)[0].status == "failed"


def test_an_error_that_is_a_result_of_the_schema_is_a_result(drive, look):
    class Report(BaseModel):
        error: str

    check = client_tool("check", Question, returns=Report)
    with agent([check], [call("check", among=[])]) as name:
        run = drive(name)
        resume_run(interrupt_id=look.open(run)[0].pk, value={"error": "none found"})
        run = drive(run=run)
    assert look.calls(run)[0].result == {"error": "none found"}


def test_a_function_of_hints_only(drive, look):
    @tool(runs="client")
    def locate(precise: bool = False) -> dict[str, float]:
        """Where the user is."""

    with agent([locate], [call("locate")]) as name:
        run = drive(name)
        handed = look.open(run)[0]
        assert handed.payload["arguments"] == {"precise": False}
        with pytest.raises(InvalidAnswer):
            resume_run(interrupt_id=handed.pk, value={"lat": "north"})
        resume_run(interrupt_id=handed.pk, value={"lat": 52.5})
        assert drive(run=run).status == "completed"


def test_invalid_arguments_are_never_handed_over(drive, look):
    with agent([pick], [call("pick_colour", among="red")]) as name:
        run = drive(name)
    assert (run.status, Interrupt.objects.count()) == ("completed", 0)
    assert "not valid" in look.messages(run)[-1][1]


def test_where_a_rule_asks_a_person_says_yes_first(drive, look, decide):
    gated = client_tool(
        "pick_colour", Question, returns=Colour, approval=ApprovalRule(title="Ask {among}")
    )
    with agent([gated], [call("pick_colour", among=["red"])]) as name:
        run = drive(name)
        question = look.open(run)[0]
        assert (question.kind, look.calls(run)[0].attempts) == ("approval", 0)
        decide(run)
        run = drive(run=run)
        assert [one.kind for one in look.open(run)] == ["client"]
        resume_run(interrupt_id=look.open(run)[0].pk, value=RED)
        assert drive(run=run).status == "completed"


def test_a_decline_hands_nothing_over(drive, look, decide):
    gated = client_tool("pick_colour", Question, approval=True)
    with agent([gated], [call("pick_colour", among=["red"])]) as name:
        run = drive(name)
        decide(run, "decline", reason="no")
        run = drive(run=run)
    assert (run.status, look.calls(run)[0].status) == ("completed", "declined")


def test_several_are_answered_in_any_order_beside_a_tool_of_ours(drive, look):
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    turn = [
        call("pick_colour", "a", among=["1"]),
        call("ping", "b"),
        call("pick_colour", "c", among=["2"]),
    ]
    with agent([pick, ping], turn) as name:
        run = drive(name)
        first, second = look.open(run)
        resume_run(interrupt_id=second.pk, value={"name": "2"})
        run = drive(run=run)
        assert run.status == "interrupted"
        resume_run(interrupt_id=first.pk, value={"name": "1"})
        run = drive(run=run)
    assert look.messages(run)[-1][1] == '{"name": "1"} | pong | {"name": "2"}'


def test_a_client_that_says_nothing_in_time(drive, look):
    slow = client_tool("pick_colour", Question, timeout=3600)
    with agent([slow], [call("pick_colour", among=["red"])]) as name:
        run = drive(name)
        handed = look.open(run)[0]
        assert handed.expires_at is not None
        Interrupt.objects.filter(pk=handed.pk).update(expires_at=DatabaseTime(-1))
        expire_questions()
        with pytest.raises(AlreadyAnswered):
            resume_run(interrupt_id=handed.pk, value=RED)
        run = drive(run=run)
    assert run.status == "completed"
    assert look.calls(run)[0].error["code"] == "CLIENT_OVERDUE_001"
    assert "whether it took effect is not known" in look.messages(run)[-1][1]


def test_a_stopped_run_says_that_the_outcome_is_not_known(drive, look):
    run = drive("picker")
    run = stop_run(run_id=run.pk)
    assert (run.status, look.open(run)) == ("stopped", [])
    assert look.calls(run)[0].status == "unknown"
    assert "its outcome is not known" in look.messages(run)[-1][1]


def test_a_worker_that_dies_before_the_hand_over_hands_it_over_later(drive, look, monkeypatch):
    from agentruntime.lifecycle import loop

    class Died(BaseException):
        pass

    def die(*args, **kwargs):
        raise Died

    from agentruntime.lifecycle import start_run

    run = start_run(graph="picker", input="go")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "pause_run", die)
        with pytest.raises(Died):
            drive(run=run)
    row = ToolExecution.objects.get(run=run)
    assert (row.status, row.outside) == ("running", {"kind": "client"})
    type(run).objects.filter(pk=run.pk).update(lease_expires_at=DatabaseTime(-1))
    run = drive(run=run)
    assert (run.status, len(look.open(run))) == ("interrupted", 1)
    resume_run(interrupt_id=look.open(run)[0].pk, value=RED)
    run = drive(run=run)
    assert (run.status, look.calls(run)[0].attempts) == ("completed", 1)


def test_over_rest_the_owner_brings_the_result(drive, look, client, django_user_model):
    ann = django_user_model.objects.create_user("ann", password="x")
    bob = django_user_model.objects.create_user("bob", password="x")
    run = drive("picker", user=ann)
    address = f"/api/v1/interrupts/{look.open(run)[0].pk}/resume/"

    def post(value):
        return client.post(address, {"value": value}, content_type="application/json")

    client.force_login(bob)
    assert post(RED).status_code == 404
    client.force_login(ann)
    assert client.get(f"/api/v1/runs/{run.pk}/").json()["open_interrupts"][0]["kind"] == "client"
    assert post({"name": 5}).status_code == 400
    assert post(RED).status_code == 200
    assert post(RED).status_code == 409
    assert drive(run=run).status == "completed"


@pytest.mark.parametrize("wrong", [{"effect": "transactional"}, {"isolation": "process"}])
def test_what_the_client_cannot_promise_is_refused(wrong):
    with pytest.raises(InvalidTool):
        client_tool("pick", Question, **wrong)


def test_retrying_a_run_that_failed_meanwhile_hands_over_anew(drive, look):
    run = drive("picker")
    from django.db import transaction

    from agentruntime.lifecycle.finish import fail_run
    from agentruntime.models import Run

    with transaction.atomic():
        fail_run(Run.locked(run.pk), RuntimeError("an operator ended it"))
    assert look.open(run) == []
    run = drive(run=retry_run(run_id=run.pk))
    assert (run.status, len(look.open(run))) == ("interrupted", 1)
