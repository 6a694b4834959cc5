"""Structured answers: validated, repaired a bounded number of times, each attempt a step."""

from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, model_validator

from agentruntime.exceptions import InvalidGraph, InvalidTool, OutputInvalid
from agentruntime.graph import END, START, Message, State, ToolCall, create_agent, tool
from agentruntime.graph.checking import check_graph
from agentruntime.graph.definition import takes_context
from agentruntime.graph.messages import new_id
from tests.llm.payloads import check_messages


class Kind(Enum):
    REFUND = "refund"
    QUESTION = "question"


class Ticket(BaseModel):
    """What a customer wants."""

    kind: Kind
    amount: Decimal = Field(gt=0, description="In euros.")
    tags: list[str] = []

    @model_validator(mode="after")
    def _small(self) -> "Ticket":
        if self.kind is Kind.REFUND and self.amount > 100:
            raise ValueError("a refund is at most 100")
        return self


GOOD = {"kind": "refund", "amount": "12.50", "tags": ["a"]}


@tool
def lookup(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id}"


def answer(**arguments: Any) -> Message:
    call = ToolCall(id="c", name="answer", arguments={"answer": arguments})
    return Message.assistant(tool_calls=[call])


class Unbounded:
    """A context whose model calls are not counted against anything."""

    def model_call(self, messages, tools):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    @staticmethod
    def answered(answer):
        return answer


def run(graph, state=None, limit=20):
    """Walk the graph as the runtime does, and return the state at its end."""
    state = state or graph.state(messages=[Message.user("hello")])
    name = graph.onward(START, state).node
    for _ in range(limit):
        if name == END:
            return state
        state = step(graph, name, state)
        name = graph.onward(name, state).node
    raise AssertionError("the graph does not end")


def step(graph, name, state):
    node = graph.nodes[name]
    if name == "tools":
        return run_tools(node, state)
    result = (node(state, Unbounded()) if takes_context(node) else node(state)) or {}
    result = {"messages": result} if isinstance(result, Message) else result
    messages = result.get("messages", [])
    messages = messages if isinstance(messages, list) else [messages]
    update = {key: value for key, value in result.items() if key != "messages"}
    return state.model_copy(update={**update, "messages": [*state.messages, *messages]})


def run_tools(node, state):
    messages, update = list(state.messages), {}
    for call in state.messages[-1].tool_calls:
        made = node.tools.get(call.name)
        try:
            typed, _ = made.read_arguments(call.arguments)
            given = {"state": state} if "state" in made.injected else {}
            result = made.fn(**typed, **given)
            content = getattr(result, "content", result)
            update |= getattr(result, "update", {})
        except Exception as error:
            content = str(error)
        messages.append(Message.tool(content, tool_call_id=call.id))
    return state.model_copy(update={**update, "messages": messages})


def agent(*replies, output: Any = Ticket, **options: Any):
    """An agent whose model gives these replies in order; `seen` is what it was given."""
    seen: list[list[Message]] = []
    told = iter(replies)

    def model(messages, tools):
        check_messages(messages)
        seen.append(list(messages))
        return next(told).model_copy(update={"id": new_id()})

    graph = create_agent(model=model, tools=[lookup], output=output, **options)
    check_graph(graph)
    return graph, seen


def test_an_answer_by_the_tool_ends_the_turn():
    graph, seen = agent(answer(**GOOD))

    state = run(graph)

    assert state.output == Ticket(kind=Kind.REFUND, amount=Decimal("12.50"), tags=["a"])
    assert [one.role for one in state.messages] == ["user", "assistant", "tool"]
    assert len(seen) == 1


def test_the_model_is_told_the_form_of_the_answer():
    graph, _ = agent(answer(**GOOD))

    schema = graph.tools["answer"].schema

    assert schema["required"] == ["answer"]
    ticket = schema["$defs"]["Ticket"]
    assert ticket["properties"]["amount"]["description"] == "In euros."
    assert ticket["required"] == ["kind", "amount"]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"kind": "refund"},
        {"kind": "something", "amount": 1},
        {"kind": "refund", "amount": 0},
        {"kind": "refund", "amount": 500},
    ],
)
def test_an_answer_that_does_not_fit_is_asked_for_again(bad):
    graph, seen = agent(answer(**bad), answer(**GOOD))

    state = run(graph)

    assert state.output.amount == Decimal("12.50")
    assert len(seen) == 2
    assert seen[1][-1].role == "tool"
    assert "answer" in seen[1][-1].content


def test_an_answer_as_json_text_is_taken():
    text = Ticket.model_validate(GOOD).model_dump_json()
    for said in (text, f"```json\n{text}\n```", f"```\n{text}\n```\n"):
        graph, _ = agent(Message.assistant(said))
        assert run(graph).output.amount == Decimal("12.50")


def test_an_answer_as_prose_is_asked_for_again_and_the_reminder_is_not_stored():
    graph, seen = agent(Message.assistant("It is a refund."), answer(**GOOD))

    state = run(graph)

    assert state.output is not None
    assert "calling `answer`" in seen[1][-1].content
    assert [one.content for one in state.messages if one.role == "user"] == ["hello"]


@pytest.mark.parametrize("bad", [answer(kind="x"), Message.assistant("prose")])
def test_attempts_are_bounded(bad):
    graph, seen = agent(*[bad] * 10, output_attempts=3)

    with pytest.raises(OutputInvalid) as raised:
        run(graph)

    assert len(seen) == 3
    assert raised.value.facts["attempts"] == 3
    assert raised.value.code == "OUTPUT_001"


def test_calls_of_other_tools_are_no_attempts():
    call = Message.assistant(
        tool_calls=[ToolCall(id="a", name="lookup", arguments={"order_id": "7"})]
    )
    graph, _ = agent(*[call] * 5, answer(**GOOD), output_attempts=1)
    assert run(graph).output is not None


def test_an_answer_beside_other_calls_is_given_again_when_their_results_are_there():
    both = Message.assistant(
        tool_calls=[
            ToolCall(id="a", name="lookup", arguments={"order_id": "7"}),
            ToolCall(id="b", name="answer", arguments={"answer": GOOD}),
        ]
    )
    graph, seen = agent(both, answer(**GOOD))

    state = run(graph)

    assert state.output is not None
    assert [one.content for one in seen[1][-2:]] == [
        "order 7",
        "The answer came beside other calls; give it when their results are there.",
    ]


def test_the_next_turn_has_an_answer_of_its_own():
    other = {**GOOD, "amount": "3"}
    graph, _ = agent(answer(**GOOD), Message.assistant("hm"), answer(**other))
    state = run(graph)
    again = state.model_copy(update={"messages": [*state.messages, Message.user("and now?")]})

    state = run(graph, state=again)

    assert state.output.amount == 3


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (list[int], [1, 2], [1, 2]),
        (Literal["yes", "no"], "yes", "yes"),
        (bool, False, False),
        (dict[str, Decimal], {"a": "1.10"}, {"a": Decimal("1.10")}),
    ],
)
def test_any_type_can_be_asked_for(kind, value, expected):
    call = ToolCall(id="c", name="answer", arguments={"answer": value})
    graph, _ = agent(Message.assistant(tool_calls=[call]), output=kind)
    assert run(graph).output == expected


def test_names_that_are_taken_are_refused():
    class Own(State):
        output: str = ""

    with pytest.raises(InvalidGraph, match="output"):
        create_agent(model=lambda messages, tools: None, output=Ticket, state=Own)

    with pytest.raises(InvalidTool, match="answer"):
        create_agent(
            model=lambda messages, tools: None,
            output=Ticket,
            tools=[tool(name="answer")(lambda: "")],
        )


def test_without_tools_the_answer_is_the_only_one():
    graph = create_agent(model=lambda messages, tools: answer(**GOOD), output=Ticket)
    check_graph(graph)
    assert run(graph).output is not None


def test_a_context_policy_decides_what_is_shown():
    seen = []

    def model(messages, tools):
        seen.append([one.content for one in messages])
        return Message.assistant("fine")

    graph = create_agent(
        model=model, instructions="Be brief.", context=lambda messages: list(messages)[-1:]
    )
    state = graph.state(messages=[Message.user("one"), Message.assistant("x"), Message.user("two")])

    run(graph, state=state)

    assert seen == [["Be brief.", "two"]]
