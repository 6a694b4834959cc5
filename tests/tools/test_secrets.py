"""A secret argument or result is told to the model, and shown nowhere else."""

import json

import pytest

from agentruntime.graph import ApprovalRule, Message, ToolCall, create_agent, tool
from agentruntime.models import Event, Thread
from agentruntime.models import Message as StoredMessage
from agentruntime.serializers import MessageBody
from tests.agents import registered

SECRET = "hunter-2-secret"


@tool(approval=ApprovalRule(editable=("amount",)))
def pay(amount: int, password: str) -> dict:
    """Pay."""
    return {"paid": amount, "access_token": SECRET}


def model(messages, tools):
    """Asks as providers do: the text of the arguments is kept beside them."""
    if messages[-1].role == "tool":
        return Message.assistant("done")
    given = {"amount": 1, "password": SECRET}
    call = ToolCall(
        id="1", name="pay", arguments=given, extra={"text": json.dumps(given, indent=2)}
    )
    broken = ToolCall(id="2", name="pay", arguments=f'{{"password": "{SECRET}", "amount":')
    return Message.assistant(tool_calls=[call, broken])


@pytest.fixture
def run(drive, decide):
    with registered(create_agent(model=model, tools=[pay])) as name:
        waiting = drive(name)
        decide(waiting, arguments={"amount": 2, "password": SECRET})
        yield drive(run=waiting)


def test_what_a_person_changed_is_told_without_the_secrets(run, look):
    assert run.status == "completed"
    told = look.messages(run)[2][1]
    assert SECRET in told.partition("\n")[0], "the model is told what the tool said"
    assert '"amount": 2' in told.partition("\n")[2]
    assert SECRET not in told.partition("\n")[2]


def test_events_and_messages_show_no_secret(run):
    shown = MessageBody(StoredMessage.objects.filter(thread=run.thread_id), many=True).data
    assert SECRET not in json.dumps(shown, default=str)
    assert SECRET not in str(list(Event.objects.filter(run=run).values_list("data", flat=True)))


def test_pages_show_no_secret(run, client, django_user_model):
    from approvals.models import Approval

    root = django_user_model.objects.create_superuser("root", password="pass-word-1")
    client.force_login(root)
    Thread.objects.filter(pk=run.thread_id).update(user=root)
    approval = Approval.objects.get(interrupt__run=run)
    places = [
        f"/admin/agentruntime/run/{run.pk}/live/",
        f"/admin/approvals/approval/{approval.pk}/change/",
        "/admin/agentruntime/message/",
        *(
            f"/admin/agentruntime/message/{pk}/change/"
            for pk in StoredMessage.objects.values_list("pk", flat=True)
        ),
        *(
            f"/admin/agentruntime/toolexecution/{pk}/change/"
            for pk in run.tool_executions.values_list("pk", flat=True)
        ),
        f"/threads/{run.thread_id}/",
    ]
    for place in places:
        answer = client.get(place)
        assert answer.status_code == 200, place
        assert SECRET not in answer.content.decode(), place
