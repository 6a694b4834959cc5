"""What of a long conversation is shown: whole turns, and the question that they are about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruntime.graph import Message, ToolCall
from agentruntime.graph.trimming import KeepMessages, KeepTokens, estimate_tokens
from tests.llm.payloads import check_messages

ids = iter(range(10**9))


def turn(*names, text=""):
    """An assistant message with calls, and their results."""
    calls = [ToolCall(id=f"c{next(ids)}", name=name) for name in names]
    results = [Message.tool(f"result of {call.name}", tool_call_id=call.id) for call in calls]
    return [Message.assistant(text, tool_calls=calls), *results]


def told(messages):
    return [one.content or [call.name for call in one.tool_calls] for one in messages]


units = st.one_of(
    st.builds(lambda text: [Message.user(text)], st.text(max_size=30)),
    st.builds(lambda text: [Message.system(text)], st.text(max_size=10)),
    st.builds(lambda text: [Message.assistant(text)], st.text(max_size=30)),
    st.builds(lambda names: turn(*names), st.lists(st.sampled_from("ab"), min_size=1, max_size=3)),
)
conversations = st.lists(units, max_size=10).map(
    lambda found: [one for unit in found for one in unit]
)
policies = st.one_of(
    st.builds(KeepMessages, st.integers(0, 12)), st.builds(KeepTokens, st.integers(0, 200))
)


@given(conversations, policies)
def test_what_is_shown_is_always_a_sound_conversation(messages, policy):
    shown = policy(messages)

    check_messages(shown)
    ids_of = [one.id for one in messages]
    places = [ids_of.index(one.id) for one in shown]
    assert places == sorted(places)


@given(conversations, policies)
def test_the_newest_and_the_question_are_always_shown(messages, policy):
    shown = policy(messages)

    assert [one for one in messages if one.role == "system"] == [
        one for one in shown if one.role == "system"
    ]
    if messages:
        assert shown[-1] == messages[-1]
    asked = [one for one in messages if one.role == "user"]
    if asked:
        assert asked[-1] in shown
        if len(shown) < len(messages):
            assert next(one.role for one in shown if one.role != "system") == "user"


@given(conversations, st.integers(0, 12))
def test_no_more_is_shown_than_the_limit_says(messages, limit):
    shown = KeepMessages(limit)(messages)

    counted = [one for one in shown if one.role != "system"]
    if len(counted) > limit:
        # Only what is always kept goes beyond it: the question, and the newest unit.
        last_results = 0
        while counted and counted[-1 - last_results].role == "tool":
            last_results += 1
        assert len(counted) <= 2 + last_results


@given(conversations, policies)
def test_the_same_conversation_is_shown_the_same(messages, policy):
    assert policy(messages) == policy(list(messages))


@given(conversations)
def test_what_fits_is_shown_whole(messages):
    assert KeepMessages(len(messages))(messages) == messages
    assert KeepTokens(sum(map(estimate_tokens, messages)))(messages) == messages


def test_a_turn_of_calls_is_shown_whole_or_not_at_all():
    messages = [
        Message.user("one"),
        *turn("a", "b", "c"),
        Message.assistant("done"),
        Message.user("two"),
        *turn("d"),
    ]
    assert told(KeepMessages(6)(messages)) == ["two", ["d"], "result of d"]
    assert told(KeepMessages(8)(messages)) == ["two", ["d"], "result of d"]
    assert told(KeepMessages(9)(messages)) == told(messages)


def test_a_long_turn_keeps_the_question_that_it_is_about():
    messages = [Message.user("the task"), *[one for n in range(20) for one in turn(f"t{n}")]]
    shown = KeepMessages(5)(messages)
    assert told(shown) == ["the task", ["t18"], "result of t18", ["t19"], "result of t19"]


@pytest.mark.parametrize("policy", [KeepMessages(1), KeepTokens(1)])
def test_nothing_is_dropped_while_a_call_waits(policy):
    call, result, _ = turn("a", "b")
    messages = [Message.user("one"), Message.assistant("x"), Message.user("two"), call, result]
    assert policy(messages) == messages


def test_an_estimate_is_rather_too_high():
    english = "The refund of twelve euros was approved by the support team this morning. " * 20
    assert len(english) / 4 < estimate_tokens(Message.user(english)) < len(english) / 2
    assert estimate_tokens(Message.user("世界" * 100)) >= 200
