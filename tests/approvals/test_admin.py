"""The queue and the decision page in the admin, as requests."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from agentruntime.lifecycle import start_run
from approvals.models import Approval, Decision
from approvals.templatetags.approvals import since

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "/admin/approvals/approval/"


def page_of(approval):
    return reverse("admin:approvals_approval_change", args=[approval.pk])


@pytest.fixture
def desk(client, bob):
    client.force_login(bob)
    return client


def test_the_queue_shows_what_waits(ask, desk):
    approval = ask()
    page = desk.get(QUEUE)
    assert page.status_code == 200
    assert "Refund 30.00 for 1042" in page.text
    assert page_of(approval) in page.text
    assert "for you" in page.text


def test_the_page_shows_the_call_and_a_form(ask, desk):
    approval = ask()
    page = desk.get(page_of(approval))
    assert page.status_code == 200
    right = "“Can decide refunds” (approvals.decide_refund)"
    for word in ("30.00", "1042", "broken", approval.digest, "alice", right):
        assert word in page.text


def form_of(page, **given):
    form = page.context["form"]
    return {"digest": form.initial["digest"], "shown": form.initial["shown"]} | given


def test_a_yes_on_the_page_runs_the_call_and_the_page_tells(ask, desk, work, shop):
    approval = ask()
    page = desk.get(page_of(approval))
    answer = desk.post(
        f"{page_of(approval)[:-7]}decide/", form_of(page, verdict="approve"), follow=True
    )
    assert answer.status_code == 200
    work()
    assert len(shop.refunds) == 1
    assert "Approved, executed" in desk.get(page_of(approval)).text
    assert Decision.objects.get().door == "admin"
    assert Decision.objects.get().seconds_shown is not None


def test_a_no_needs_a_reason(ask, desk):
    approval = ask()
    page = desk.get(page_of(approval))
    url = f"{page_of(approval)[:-7]}decide/"
    assert desk.post(url, form_of(page, verdict="decline")).status_code == 400
    assert desk.post(url, form_of(page, verdict="decline", reason="no")).status_code == 302
    assert Approval.objects.get().status == "declined"


def test_an_edit_on_the_page_runs_edited(ask, desk, work, shop):
    approval = ask()
    page = desk.get(page_of(approval))
    url = f"{page_of(approval)[:-7]}decide/"
    desk.post(url, form_of(page, **{"verdict": "approve", "edit-amount": "12.50"}))
    work()
    assert [one["amount"] for one in shop.refunds] == ["12.50"]
    assert "Edited and approved, executed" in desk.get(page_of(approval)).text
    assert "the agent asked for" in desk.get(page_of(approval)).text.lower()


def test_nothing_is_decided_by_get(ask, desk):
    approval = ask()
    for part in ("decide", "claim", "release"):
        assert desk.get(f"{page_of(approval)[:-7]}{part}/").status_code == 405
    assert desk.get(f"{QUEUE}bulk/").status_code == 405


def test_claim_and_release(ask, desk, bob):
    approval = ask()
    desk.post(f"{page_of(approval)[:-7]}claim/")
    assert Approval.objects.get().claimed_by == bob
    assert "claimed by bob" in desk.get(QUEUE).text
    desk.post(f"{page_of(approval)[:-7]}release/")
    assert Approval.objects.get().claimed_by is None


def test_a_host_shows_a_tool_with_a_template_of_its_own(ask, desk, settings, tmp_path):
    folder = tmp_path / "approvals" / "tools"
    folder.mkdir(parents=True)
    (folder / "refund.html").write_text("<p>Our own view of {{ approval.target }}</p>")
    engine = settings.TEMPLATES[0]
    settings.TEMPLATES = [engine | {"DIRS": [*engine["DIRS"], tmp_path]}]
    assert "Our own view of 1042" in desk.get(page_of(ask())).text


def test_arguments_that_the_schema_does_not_know_are_shown_and_marked(ask, desk):
    approval = ask()
    Approval.objects.update(arguments=approval.arguments | {"account": "mallory"})
    page = desk.get(page_of(approval)).text
    assert "mallory" in page
    assert "not in the tool&#x27;s schema" in page or "not in the tool's schema" in page


def test_earlier_decisions_on_the_same_order_are_told(ask, desk, bob):
    from approvals.decide import decide

    earlier = ask()
    decide(approval_id=earlier.pk, verdict="decline", user=bob, reason="Once is enough.")
    page = desk.get(page_of(ask())).text
    assert "Once is enough." in page
    assert page_of(earlier) in page


def test_what_was_asked_in_the_same_breath_and_waits_is_not_earlier(agent, alice, work, desk):
    calls = [
        {"tool": "refund", "arguments": {"order_id": order, "amount": "30"}} for order in ("1", "2")
    ]
    start_run(graph=agent, input=json.dumps(calls), user=alice)
    work()
    first, second = Approval.objects.order_by("created_at")
    story = desk.get(page_of(second)).context["story"]
    assert (story.on_thread, story.beside) == ([], [first])


def test_only_what_waits_has_a_moment_until_which_it_waits(ask, desk):
    approval = ask()
    page = desk.get(page_of(approval))
    assert "then it expires and nothing runs" in page.text
    url = f"{page_of(approval)[:-7]}decide/"
    desk.post(url, form_of(page, verdict="decline", reason="no"))
    assert "then it expires and nothing runs" not in desk.get(page_of(approval)).text


@pytest.mark.parametrize(
    ("hours", "short", "words"),
    [
        (47.9, "in 2 d", "in 2 days"),
        (36.01, "in 1.5 d", "in 1.5 days"),
        (1.01, "in 61 min", "in 61 minutes"),
    ],
)
def test_the_queue_and_the_page_round_a_moment_alike(hours, short, words):
    moment = timezone.now() + timedelta(hours=hours)
    assert (since(moment, "short"), since(moment)) == (short, words)


def test_the_page_takes_as_many_queries_for_a_long_thread(ask, desk, django_assert_max_num_queries):
    approval = ask()
    with django_assert_max_num_queries(40):
        desk.get(page_of(approval))


def test_the_dashboard_needs_its_permission(ask, desk, client, person):
    ask()
    assert desk.get(f"{QUEUE}dashboard/").status_code == 403
    client.force_login(person("lead", "approvals.view_dashboard", "approvals.decide_refund"))
    assert client.get(f"{QUEUE}dashboard/").status_code == 200


SECRETS = {"token": "S1-canary", "cfg": {"password": "S2-canary", "a": "b"}}


@pytest.fixture
def connected():
    """An agent that wants a call with secrets in its arguments; gives what the tool was given."""
    from agentruntime.graph import ApprovalRule, Message, ToolCall, create_agent, register, tool
    from agentruntime.graph.registry import unregister

    got = []

    @tool(approval=ApprovalRule(permission="approvals.decide_refund", editable=("cfg", "token")))
    def connect(token: str, cfg: dict[str, str]) -> str:
        """Connect."""
        got.append({"token": token, "cfg": cfg})
        return "connected"

    def model(messages, tools):
        if messages[-1].role == "user":
            call = ToolCall(id="c", name="connect", arguments=SECRETS)
            return Message.assistant("", tool_calls=[call])
        return Message.assistant("done")

    register("wires", create_agent(model=model, tools=[connect]))
    yield got
    unregister("wires")


def test_secrets_of_arguments_are_shown_nowhere(connected, agent, alice, desk, work, bob):
    from agentruntime.lifecycle import start_run
    from agentruntime.models import Event
    from approvals.decide import decide

    start_run(graph="wires", input="connect", user=alice)
    work()
    approval = Approval.objects.get()
    page = desk.get(page_of(approval)).text
    events = str(list(Event.objects.values("type", "data")))
    assert "canary" not in str(approval.arguments) + page + events
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    work()
    assert connected == [SECRETS]
    assert "canary" not in str(Decision.objects.values())


@pytest.mark.parametrize(
    ("settings_given", "code"),
    [
        ({"NONSENSE": 1}, "approvals.E001"),
        ({"RULES": {"x": {"limit": []}}}, "approvals.E002"),
        ({"RULES": {"x": {"limits": [{"upto": 1, "group": "g"}]}}}, "approvals.E003"),
        ({"RULES": {"x": {"limits": [{"up_to": "much", "group": "g"}]}}}, "approvals.E004"),
        ({"RULES": {"x": {"limits": [{"up_to": "-1", "group": "g"}]}}}, "approvals.E005"),
        ({"RULES": {"x": {"limits": [{"up_to": "1"}]}}}, "approvals.E006"),
        ({"MAIL": True}, "approvals.W001"),
    ],
)
def test_a_wrong_setting_is_said_at_the_start(settings, settings_given, code):
    from approvals.checks import check_settings

    settings.APPROVALS = settings_given
    assert [one.id for one in check_settings()] == [code]
