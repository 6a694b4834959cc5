"""Pausing and resuming: each answer for its own question, in any order, once."""

import threading

import pytest

from agentruntime.exceptions import AlreadyAnswered, InterruptNotFound, InvalidAnswer, WrongDoor
from agentruntime.graph import END, START, Message, State, StateGraph, interrupt, tool
from agentruntime.lifecycle import delete_thread, resume_run, stop_run
from agentruntime.models import DatabaseTime, Interrupt, Run
from tests.agents import agent, call, registered


class Form(State):
    answers: list = []


def asking(*payloads):
    """A graph of one node that asks these questions one after the other."""

    def node(state):
        return {"answers": [interrupt(payload) for payload in payloads]}

    graph = StateGraph(Form)
    graph.add_node("ask", node)
    return graph.add_edge(START, "ask").add_edge("ask", END)


def answers_of(run):
    return run.thread.checkpoints.order_by("-version").first().state["answers"]


@pytest.mark.parametrize("value", [False, 0, "", [], {}, None, "yes"])
def test_falsy_answers_are_answers(drive, look, value):
    with registered(asking("sure?")) as name:
        run = drive(name)
        assert (run.status, run.lease_expires_at) == ("interrupted", None)
        resume_run(interrupt_id=look.open(run)[0].pk, value=value)
        run = drive(run=run)
    assert (run.status, answers_of(run)) == ("completed", [value])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"message": "a\x00b"}, "message: the text has a NUL"),
        ({"message": "a\ud800b"}, "message: the text has a lone surrogate"),
        ({"message": 5}, "message: text was expected"),
        ({"response_schema": {"type": "nonsense"}}, "response_schema: no JSON Schema"),
        ({"response_schema": {"pattern": "("}}, "response_schema: no JSON Schema"),
        ({"response_schema": {"enum": [{1}]}}, "response_schema"),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error_of_its_tool(drive, look, asked, told):
    @tool
    def ask() -> str:
        """Ask."""
        return interrupt("sure?", **asked)

    with agent([ask], [call("ask")]) as name:
        run = drive(name)
    assert (run.status, Interrupt.objects.count()) == ("completed", 0)
    assert told in look.messages(run)[-1][1]


def test_an_answer_to_a_schema_that_cannot_be_used_is_refused(drive, look):
    with registered(asking("sure?")) as name:
        question = look.open(drive(name))[0]
    for schema in ({"type": "nonsense"}, {"pattern": "("}, {"$ref": "#/nowhere"}):
        Interrupt.objects.update(response_schema=schema)
        with pytest.raises(InvalidAnswer, match="its schema cannot be used"):
            resume_run(interrupt_id=question.pk, value="yes")
    Interrupt.objects.update(response_schema=None, kind="outcome")
    for value in ({"outcome": []}, {"outcome": {}}, {}, []):
        with pytest.raises(InvalidAnswer, match="it is one of succeeded"):
            resume_run(interrupt_id=question.pk, value=value)


def test_equal_questions_in_a_loop_are_three_questions(drive, look):
    with registered(asking("ok?", "ok?", "ok?")) as name:
        run = drive(name)
        seen = []
        for value in ("no", "no", "yes"):
            question = look.open(run)[0]
            seen.append(question.pk)
            resume_run(interrupt_id=question.pk, value=value)
            run = drive(run=run)
    assert (run.status, answers_of(run)) == ("completed", ["no", "no", "yes"])
    assert len(set(seen)) == 3 == Interrupt.objects.count()


def test_reordered_questions_keep_their_answers(drive, look):
    with registered(asking("address", "amount")) as name:
        run = drive(name)
        resume_run(interrupt_id=look.open(run)[0].pk, value="1 Main St")
    with registered(asking("amount", "address")) as name:
        run = drive(run=run)
        assert [one.payload for one in look.open(run)] == ["amount"]
        resume_run(interrupt_id=look.open(run)[0].pk, value="25")
        run = drive(run=run)
    assert answers_of(run) == ["25", "1 Main St"]


def test_a_changed_question_is_asked_anew_and_the_old_answer_is_not_used(drive, look):
    with registered(asking({"amount": 10})) as name:
        run = drive(name)
        resume_run(interrupt_id=look.open(run)[0].pk, value="yes")
    with registered(asking({"amount": 999})) as name:
        run = drive(run=run)
    assert run.status == "interrupted"
    assert [one.payload for one in look.open(run)] == [{"amount": 999}]


def test_parallel_tools_are_answered_in_any_order_each_by_its_id(drive, look):
    ran = []

    def ask(name: str) -> str:
        ran.append(name)
        return f"{name}={interrupt({'name': name})}"

    with agent([ask], [call("ask", "1", name="A"), call("ask", "1", name="B")]) as name:
        run = drive(name)
        first, second = look.open(run)
        resume_run(interrupt_id=second.pk, value="b")
        run = drive(run=run)
        assert (run.status, sorted(ran)) == ("interrupted", ["A", "B", "B"])
        assert [one.pk for one in look.open(run)] == [first.pk]
        resume_run(interrupt_id=first.pk, value="a")
        run = drive(run=run)
    assert [content for _, content in look.messages(run)[2:4]] == ["A=a", "B=b"]


def test_a_finished_sibling_does_not_run_again_when_a_question_is_answered(drive, look):
    charged = []

    def charge() -> str:
        charged.append(1)
        return "charged"

    def confirm() -> str:
        return str(interrupt("ship to 1 Main St?"))

    with agent([charge, confirm], [call("charge", "1"), call("confirm", "2")]) as name:
        run = drive(name)
        resume_run(interrupt_id=look.open(run)[0].pk, value=True)
        run = drive(run=run)
    assert (run.status, charged) == ("completed", [1])


def test_a_pause_is_not_swallowed_by_a_broad_except(drive):
    def careless() -> str:
        try:
            return str(interrupt("really?"))
        except BaseException:
            return "went on regardless"

    with agent([careless], [call("careless")]) as name:
        assert drive(name).status == "interrupted"


def test_answers_are_refused_without_a_question(drive, look):
    import uuid

    with registered(asking("sure?")) as name:
        run = drive(name)
        question = look.open(run)[0]
        with pytest.raises(InterruptNotFound):
            resume_run(interrupt_id=uuid.uuid4(), value=1)
        with pytest.raises(InterruptNotFound):
            resume_run(interrupt_id="nonsense", value=1)
        with pytest.raises(InvalidAnswer, match="NUL"):
            resume_run(interrupt_id=question.pk, value="a\x00")
        resume_run(interrupt_id=question.pk, value=1)
        with pytest.raises(AlreadyAnswered, match="answered"):
            resume_run(interrupt_id=question.pk, value=2)


def test_an_answer_must_fit_the_schema(drive, look):
    def node(state):
        return {"answers": [interrupt("how many?", response_schema=int)]}

    graph = StateGraph(Form)
    graph.add_node("ask", node)
    graph.add_edge(START, "ask").add_edge("ask", END)
    with registered(graph) as name:
        run = drive(name)
        question = look.open(run)[0]
        with pytest.raises(InvalidAnswer, match="integer"):
            resume_run(interrupt_id=question.pk, value="many")
        assert look.fresh(run).status == "interrupted"
        resume_run(interrupt_id=question.pk, value=3)
        assert answers_of(drive(run=run)) == [3]


def test_an_approval_is_not_answered_through_the_door_for_questions(drive, look):
    @tool(approval=True)
    def pay() -> str:
        return "paid"

    with agent([pay], [call("pay")]) as name:
        run = drive(name)
        with pytest.raises(WrongDoor):
            resume_run(interrupt_id=look.open(run)[0].pk, value={"verdict": "approve"})
    assert look.fresh(run).status == "interrupted"


def test_of_many_answers_at_once_one_wins(drive, look):
    with registered(asking("sure?")) as name:
        run = drive(name)
        question, won, lost = look.open(run)[0], [], []

        def answer(n):
            from django.db import connection

            try:
                resume_run(interrupt_id=question.pk, value=n)
                won.append(n)
            except AlreadyAnswered:
                lost.append(n)
            finally:
                connection.close()

        threads = [threading.Thread(target=answer, args=(n,)) for n in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        run = drive(run=run)
    assert (len(won), len(lost)) == (1, 7)
    assert answers_of(run) == won


def test_stopping_a_waiting_run_closes_its_question_and_gives_each_call_a_result(drive, look):
    def ask() -> str:
        return str(interrupt("q"))

    def done() -> str:
        return "done"

    with agent([ask, done], [call("ask", "1"), call("done", "2")]) as name:
        run = drive(name)
        stop_run(run_id=run.pk)
        assert look.fresh(run).status == "stopped"
        assert Interrupt.objects.get().status == "cancelled"
        assert [content for _, content in look.messages(run)[2:]] == [
            "Error: not run: the run was stopped",
            "done",
        ]
        again = drive(name, input="more", thread_id=run.thread_id)
    assert again.status in ("interrupted", "completed")


def test_a_question_whose_time_is_over_expires_and_the_run_goes_on(drive, look):
    from agentruntime.lifecycle.recover import sweep

    with registered(asking("sure?")) as name:
        run = drive(name)
        Interrupt.objects.update(expires_at=DatabaseTime(-1))
        assert run.pk in sweep()
        assert Interrupt.objects.get().status == "expired"
        assert look.fresh(run).status == "queued"


def test_deleting_a_thread_takes_everything_along(drive, look):
    with registered(asking("sure?")) as name:
        run = drive(name)
        delete_thread(thread_id=run.thread_id)
    assert not Run.objects.exists()
    assert not Interrupt.objects.exists()


def test_history_stays_valid_after_a_failed_run(drive, look):
    def breaks() -> str:
        raise SystemExit

    def model(messages, tools):
        for position, one in enumerate(messages):
            for asked in one.tool_calls:
                results = [m for m in messages[position:] if m.tool_call_id == asked.id]
                assert len(results) == 1
        return Message.assistant("fine")

    with agent([breaks], [call("breaks")]) as name:
        run = drive(name, config={"recursion_limit": 1})
    assert run.status == "failed"
    from agentruntime.graph import create_agent

    with registered(create_agent(model=model)) as name:
        run = drive(name, input="go on", thread_id=run.thread_id)
    assert (run.status, run.error_detail) == ("completed", "")
