"""The page for people who talk to agents: own threads only, changes by POST, all text is text."""

import re
import uuid

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from agentruntime.lifecycle import start_run
from agentruntime.models import Interrupt, Message, Run, RunStatus, Thread
from approvals.decide import decide
from approvals.models import Approval

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def page(sam):
    client = Client()
    client.force_login(sam)
    return client


def address(name, run, *more):
    return reverse(f"pages:{name}", args=[run.thread_id, *more])


def written(text, **more):
    return {"message": text, "key": str(uuid.uuid4()), **more}


def entries(page, run, after=0):
    return page.get(address("live", run), {"after": after}).json()


def text_of(body):
    return " ".join(one["html"] for one in body["entries"])


# --- who sees what ---------------------------------------------------------------------------


def test_a_stranger_is_sent_to_the_login(client):
    for path in ("/", reverse("pages:thread", args=[uuid.uuid4()])):
        answer = client.get(path)
        assert answer.status_code == 302
        assert answer.url.startswith(reverse("login"))


@pytest.mark.parametrize("name", ["thread", "live"])
@pytest.mark.parametrize("is_superuser", [False, True])
def test_the_thread_of_another_does_not_exist(begin, name, is_superuser):
    run = begin()
    other = get_user_model().objects.create_user("kim", is_superuser=is_superuser)
    client = Client()
    client.force_login(other)

    assert client.get(address(name, run)).status_code == 404


def test_nobody_changes_the_thread_of_another(begin):
    run = begin("Please.", graph="purchase")
    asked = Interrupt.objects.get()
    client = Client()
    client.force_login(get_user_model().objects.create_user("kim"))

    answers = [
        client.post(address("send", run), written("hello")),
        client.post(address("stop", run)),
        client.post(address("answer", run, asked.pk), {"json": "true"}),
    ]

    assert [answer.status_code for answer in answers] == [404] * 3
    assert Run.objects.get().status == RunStatus.INTERRUPTED


def test_an_approval_cannot_be_answered_on_the_page(begin, page):
    run = begin()

    answer = page.post(address("answer", run, Interrupt.objects.get().pk), {"json": "true"})

    assert answer.status_code == 404
    assert Approval.objects.get().is_pending


@pytest.mark.parametrize("name", ["send", "stop"])
def test_reading_changes_nothing(begin, page, name):
    assert page.get(address(name, begin())).status_code == 405


def test_a_change_needs_the_forms_token(begin, sam):
    run = begin()
    client = Client(enforce_csrf_checks=True)
    client.force_login(sam)

    assert client.post(address("stop", run)).status_code == 403
    assert client.post(reverse("pages:start"), written("hi", graph="support")).status_code == 403


def test_a_browser_is_told_to_run_nothing_but_the_sites_own_files(begin, page):
    answer = page.get(address("thread", begin()))

    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    body = answer.content.decode()
    assert re.findall(r"<script(?![^>]*src=)", body) == []
    assert re.findall(r"\sstyle=|\son[a-z]+=", body) == []


# --- what is shown ---------------------------------------------------------------------------


def test_a_conversation_that_waits_says_for_what_and_for_whom(begin, page):
    body = page.get(address("thread", begin())).content.decode()

    assert "Order 1042 arrived broken" in body
    assert "Refund 49.90 for order 1042" in body
    assert "a person with the right “Can decide refunds”" in body
    assert "Waiting for a person" in body


def test_a_decision_is_shown_with_name_and_reason(begin, page, lead, work_off):
    run = begin()
    decide(
        approval_id=Approval.objects.get().pk, verdict="decline", user=lead, reason="Used for soup"
    )
    work_off(run)

    body = text_of(entries(page, run))

    assert "<strong>Declined</strong> by <bdi>lead</bdi>" in body
    assert "Used for soup" in body


def test_an_edited_call_shows_what_was_asked_for(begin, page, lead, work_off):
    run = begin()
    decide(
        approval_id=Approval.objects.get().pk,
        verdict="approve",
        user=lead,
        arguments={"amount": "20.00"},
    )
    work_off(run)

    body = text_of(entries(page, run))

    assert "Changed and approved" in body
    assert "the agent asked for <bdi>49.90</bdi>" in body


def test_nothing_that_was_written_becomes_markup(begin, page):
    run = begin(f"{SCRIPT} order 1042 broken, refund it")

    for body in (
        page.get(address("thread", run)).content.decode(),
        text_of(entries(page, run)),
        entries(page, run)["news"],
        page.get("/").content.decode(),
    ):
        assert SCRIPT not in body
        assert "&lt;script&gt;" in body


def test_what_is_unchanged_keeps_its_key_and_revision(begin, page, lead, work_off):
    run = begin()
    before = {one["key"]: one["rev"] for one in entries(page, run)["entries"]}
    decide(approval_id=Approval.objects.get().pk, verdict="approve", user=lead)
    work_off(run)

    after = {one["key"]: one["rev"] for one in entries(page, run)["entries"]}

    same = [key for key in before if after.get(key) == before[key]]
    changed = [key for key in before if key in after and after[key] != before[key]]
    assert len(same) == 4  # what sam wrote, two announcements, the look-up
    assert [key.split(":")[1] for key in changed] == ["call_2"]


def test_asking_again_without_news_is_answered_shortly(begin, page):
    run = begin()
    seq = entries(page, run)["seq"]

    with_news = entries(page, run, seq - 1)
    without = entries(page, run, seq)

    assert without == {"seq": seq}
    assert with_news["news"].count("<li") == 1


@pytest.mark.parametrize("after", ["", "x", "-1", "9" * 30, "²"])
def test_a_strange_number_is_no_number(begin, page, after):
    assert entries(page, begin(), after)["entries"]


def test_a_long_conversation_is_shown_from_its_newest(begin, page):
    run = begin("hello")
    rows = [
        Message(thread_id=run.thread_id, ordinal=n, version=n, role="user", content=f"number {n}")
        for n in range(3, 203)
    ]
    Message.objects.bulk_create(rows)
    Thread.objects.update(message_count=202)

    shown = entries(page, run)["entries"]

    assert len(shown) == 80
    assert "number 202" in shown[-1]["html"]


def test_the_queries_of_a_page_do_not_grow_with_the_conversation(
    begin, page, sam, work_off, django_assert_max_num_queries
):
    run = begin("where are the orders 1041, 1043, 1044, 1045, 1046?")
    for _ in range(5):
        text = "where are 1041, 1043, 1044, 1045, 1046?"
        run = work_off(start_run(graph="support", input=text, thread_id=run.thread_id, user=sam))

    with django_assert_max_num_queries(16):
        page.get(address("thread", run))


def test_a_failed_run_says_so(begin, page):
    run = begin("where is order 1042?", config={"recursion_limit": 1})

    body = text_of(entries(page, run))

    assert "The run failed." in body
    assert "RECURSION_LIMIT_001" in body


# --- what is done ----------------------------------------------------------------------------


def test_beginning_starts_a_run_for_the_person_and_leads_to_its_page(page, sam):
    answer = page.post(reverse("pages:start"), written("hello", graph="support"))

    run = Run.objects.get()
    assert run.user == sam
    assert answer.url == address("thread", run)


def test_a_double_click_begins_once(page):
    form = written("hello", graph="support")

    answers = [page.post(reverse("pages:start"), form) for _ in range(2)]

    assert Run.objects.count() == 1
    assert answers[0].url == answers[1].url


@pytest.mark.parametrize(
    "form",
    [written(" ", graph="support"), written("hi", graph="nobody"), {"message": "hi"}],
    ids=["empty", "unknown agent", "no key"],
)
def test_what_cannot_begin_is_said(page, form):
    answer = page.post(reverse("pages:start"), form, follow=True)

    assert "Choose an agent and write a message." in answer.content.decode()
    assert not Thread.objects.exists()


def test_a_message_while_the_agent_works_is_refused_in_words(begin, page):
    run = begin()

    answer = page.post(
        address("send", run), written("never mind"), headers={"Accept": "application/json"}
    )

    assert answer.status_code == 409
    assert "still at work" in answer.json()["detail"]


def test_the_next_message_goes_to_the_same_agent(begin, page, work_off):
    run = begin("hello")

    answer = page.post(
        address("send", run),
        written("where is order 1042?"),
        headers={"Accept": "application/json"},
    )

    assert answer.status_code == 200
    assert "key" in answer.json()
    later = Run.objects.order_by("-created_at")[0]
    assert (later.graph, later.thread_id) == ("support", run.thread_id)
    assert "was delivered" in text_of(entries(page, work_off(later)))


def test_stopping_a_run_that_waits_ends_it_and_says_so(begin, page):
    run = begin()

    answer = page.post(address("stop", run), headers={"Accept": "application/json"})

    assert answer.status_code == 200
    assert Run.objects.get().status == RunStatus.STOPPED
    body = text_of(entries(page, run))
    assert "Stopped." in body
    assert "Withdrawn" in body


def test_a_question_is_answered_with_a_button_and_the_run_goes_on(begin, page, work_off):
    run = begin("Please.", graph="purchase")
    body = text_of(entries(page, run))
    assert "Ship to 1 Main St?" in body
    assert "Waits for you" in body

    asked = Interrupt.objects.get()
    answer = page.post(address("answer", run, asked.pk), {"json": "true"})

    assert answer.url == address("thread", run)
    assert "Confirmed" in text_of(entries(page, work_off(run)))


@pytest.mark.parametrize("value", ['{"a":', '"yes"'], ids=["no JSON", "another type"])
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(begin, page, value):
    run = begin("Please.", graph="purchase")
    asked = Interrupt.objects.get()

    answer = page.post(
        address("answer", run, asked.pk), {"json": value}, headers={"Accept": "application/json"}
    )

    assert answer.status_code == 409
    assert Interrupt.objects.get().status == "open"


def test_a_second_answer_is_told_that_it_came_late(begin, page):
    run = begin("Please.", graph="purchase")
    asked = Interrupt.objects.get()
    accept = {"Accept": "application/json"}

    first = page.post(address("answer", run, asked.pk), {"json": "true"}, headers=accept)
    second = page.post(address("answer", run, asked.pk), {"json": "false"}, headers=accept)

    assert (first.status_code, second.status_code) == (200, 409)
    assert Interrupt.objects.get().answer is True
