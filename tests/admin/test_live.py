"""The live page of a run: who may see it, what it shows, and the graph as a picture."""

import re

import pytest

from agentruntime.admin.live import places_of
from agentruntime.admin.picture import picture_of
from agentruntime.graph import Message, StateGraph, create_agent, interrupt
from agentruntime.graph.definition import END, START
from agentruntime.graph.registry import get_graph
from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Interrupt, Run
from tests.agents import registered
from tests.edges.test_sweep import snapshot

pytestmark = pytest.mark.django_db(transaction=True)
XSS = '<img src=x onerror="alert(1)">'
VIEW = "agentruntime.view_run"


@pytest.fixture
def ann(person):
    return person("ann")


@pytest.fixture
def waiting(work, ann, asking):
    """A run that waits for an answer of ann, about something that would be markup."""
    return work(start_run(graph=asking, input=XSS, user=ann).pk)


def page_of(run):
    return f"/admin/agentruntime/run/{run.pk}/live/"


def news_of(run):
    return f"{page_of(run)}news/"


@pytest.fixture
def staff(person, client):
    def log_in(*permissions):
        client.force_login(person("sta", *permissions, is_staff=True))
        return client

    return log_in


@pytest.mark.parametrize("place", [page_of, news_of])
def test_only_staff_with_the_right_see_a_run(place, waiting, client, staff, person):
    assert "/login/" in client.get(place(waiting)).headers["Location"]
    client.force_login(person("bob", VIEW))
    assert client.get(place(waiting)).status_code == 302
    client.logout()
    assert staff().get(place(waiting)).status_code == 403


@pytest.mark.parametrize("place", [page_of, news_of])
def test_looking_changes_nothing_and_nothing_is_sent_there(place, waiting, staff):
    client, before = staff(VIEW), snapshot()
    assert client.get(place(waiting)).status_code == 200
    assert client.post(place(waiting)).status_code == 405
    assert client.get(place(Run())).status_code == 404
    assert snapshot() == before


def test_the_page_shows_steps_tools_and_what_waits_as_text(waiting, staff):
    shown = staff(VIEW).get(page_of(waiting)).content.decode()
    assert "Waiting for a person" in shown
    assert "run.interrupted" in shown
    assert ">ask</a>" in shown
    question = Interrupt.objects.get()
    assert f"/admin/agentruntime/interrupt/{question.pk}/change/" in shown
    assert "waits for <bdi>ann</bdi>" in shown
    assert XSS not in shown
    assert "&lt;img src=x" in shown
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=\"| style=", shown)


def test_who_may_answer_is_led_to_the_form(waiting, staff):
    shown = staff(VIEW, "agentruntime.answer_interrupt").get(page_of(waiting)).content.decode()
    assert f"/admin/agentruntime/interrupt/{Interrupt.objects.get().pk}/answer/" in shown


def test_an_approval_is_led_to_where_it_is_decided(work, shop, ann, staff):
    text = "Order 1042 arrived broken, please refund it"
    run = work(start_run(graph="support", input=text, user=ann).pk)
    (wait,) = staff(VIEW).get(news_of(run)).json()["waits"]
    assert wait["whom"] == "a person with the right “Can decide refunds”"
    assert wait["url"] == f"/admin/approvals/approval/{Interrupt.objects.get().approval.pk}/change/"


def test_the_picture_marks_where_the_run_is(waiting, staff, ann, work):
    client = staff(VIEW)
    marked = re.compile(r'class="box [^"]*\bhere" data-node="([^"]+)"')
    shown = client.get(page_of(waiting)).content.decode()
    assert marked.findall(shown) == ["tools"]
    assert "now at: tools</title>" in shown
    assert "model leads to tools, End." in shown

    resume_run(interrupt_id=Interrupt.objects.get().pk, value="yes", user=ann)
    done = work(waiting.pk)
    assert marked.findall(client.get(page_of(done)).content.decode()) == [END]


def test_news_are_what_came_after_and_nothing_twice(waiting, staff, ann, work):
    client = staff(VIEW)
    first = client.get(news_of(waiting)).json()
    assert [one["seq"] for one in first["steps"]] == list(range(1, first["seq"] + 1))
    assert client.get(f"{news_of(waiting)}?after={first['seq']}").json() == {"seq": first["seq"]}
    assert client.get(f"{news_of(waiting)}?after=no").json() == first

    resume_run(interrupt_id=Interrupt.objects.get().pk, value="yes", user=ann)
    work(waiting.pk)
    then = client.get(f"{news_of(waiting)}?after={first['seq']}").json()
    assert [one["seq"] for one in then["steps"]] == list(range(first["seq"] + 1, then["seq"] + 1))
    assert (then["status"], then["active"], then["waits"]) == ("completed", False, [])
    assert XSS in " ".join(one["words"] for one in first["steps"])


def test_a_run_that_has_not_begun_and_one_whose_graph_is_gone(staff, ann, runtime):
    client = staff(VIEW)
    with registered(create_agent(model=lambda messages, tools: Message.assistant("hi"))) as name:
        run = start_run(graph=name, input="hello", user=ann)
        assert client.get(news_of(run)).json()["note"] == "Waits for a worker."
        assert places_of(run, get_graph(name)) == [START]
    assert "has no graph of this name" in client.get(page_of(run)).content.decode()


def test_the_run_leads_to_its_live_page(waiting, staff):
    client = staff(VIEW)
    for place in ("/admin/agentruntime/run/", f"/admin/agentruntime/run/{waiting.pk}/change/"):
        assert page_of(waiting) in client.get(place).content.decode()


def step(state):
    return None


def test_branches_and_ways_back_are_drawn_apart():
    graph = StateGraph()
    for name in ("<b>plan", "left", "right", "join"):
        graph.add_node(name, step)
    graph.add_edge(START, "<b>plan")
    for name in ("left", "right"):
        graph.add_edge("<b>plan", name).add_edge(name, "join")
    graph.add_conditional_edges("join", lambda state: END, ["left", END])
    with registered(graph):
        pass
    picture = picture_of(graph)
    boxes = {box.name: box for box in picture.boxes}
    assert set(boxes) == {START, END, *graph.nodes}
    assert len({(box.x, box.y) for box in picture.boxes}) == len(boxes)
    assert boxes["left"].y == boxes["right"].y < boxes["join"].y < boxes[END].y
    assert [line.kind for line in picture.lines].count("maybe") == 2
    assert picture.is_wide
    assert all(box.x >= 0 and box.x + 170 <= picture.width for box in picture.boxes)


def asks(state):
    interrupt({"what": "left"}, message="Shall the left one go on?")


def test_each_branch_that_is_at_work_is_marked(work, ann, staff):
    graph = StateGraph()
    for name, node in (("left", asks), ("right", step), ("then", asks), ("quick", step)):
        graph.add_node(name, node)
    graph.add_node("plan", step).add_node("join", step).add_edge(START, "plan")
    for name in ("left", "right", "quick"):
        graph.add_edge("plan", name)
    graph.add_edge("right", "then").add_edge("join", END)
    for name in ("left", "then", "quick"):
        graph.add_edge(name, "join")
    with registered(graph) as name:
        run = work(start_run(graph=name, input="go", user=ann).pk)
        assert run.status == "interrupted"
        assert places_of(run, graph) == ["left", "then"]
        news = staff(VIEW).get(news_of(run)).json()
        assert len(news["waits"]) == 2
        assert news["at"] == "left, then"
        for question in Interrupt.objects.all():
            resume_run(interrupt_id=question.pk, value="yes", user=ann)
        assert places_of(work(run.pk), graph) == [END]
