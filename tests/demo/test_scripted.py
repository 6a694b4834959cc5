"""The scripted model decides from the messages alone, and tells only what the tools answered."""

import json
from decimal import Decimal

import pytest

from agentruntime.demo.scripted import calls_of_turn, read_wish, support_model
from agentruntime.demo.tools import lookup_order, refund
from agentruntime.graph import Message

STORY = "Order 1042 arrived broken, please refund it"


def say(*messages):
    return support_model(list(messages), [])


def answered(message, *contents):
    """The tool messages that answer an assistant message's calls."""
    return [
        Message.tool(content, tool_call_id=call.id)
        for call, content in zip(message.tool_calls, contents, strict=True)
    ]


def order(order_id):
    return json.dumps(lookup_order(order_id))


def asked_for_refund(text=STORY, order_id="1042"):
    """The conversation up to the model's call of `refund`."""
    user = Message.user(text)
    lookup = say(user)
    so_far = [user, lookup, *answered(lookup, order(order_id))]
    return [*so_far, support_model(so_far, [])]


def shown(message):
    return [(call.name, call.arguments) for call in message.tool_calls]


def test_it_looks_the_order_up_first():
    assert shown(say(Message.user(STORY))) == [("lookup_order", {"order_id": "1042"})]


def test_then_it_asks_for_the_refund_with_the_customers_words():
    ask = asked_for_refund()[-1]

    assert shown(ask) == [("refund", {"order_id": "1042", "amount": "49.90", "reason": STORY})]
    values, _ = refund.read_arguments(ask.tool_calls[0].arguments)
    assert values["amount"] == Decimal("49.90")


def test_equal_messages_get_equal_answers():
    so_far = asked_for_refund()[:-1]

    first, second = support_model(so_far, []), support_model(so_far, [])

    assert first.model_dump(exclude={"id"}) == second.model_dump(exclude={"id"})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            '{"refund_id": "re_1", "order_id": "1042", "amount": "49.90"}',
            "refund of 49.90 EUR for order 1042 (Teapot, stoneware) has been made. "
            "Its number is re_1",
        ),
        (
            '{"refund_id": "re_1", "order_id": "1042", "amount": "30.00"}',
            "30.00 EUR for order 1042 (Teapot, stoneware) was approved, instead of the 49.90 EUR",
        ),
        (
            '{"refund_id": "re_1", "order_id": "1042", "amount": "30.00"}\n'
            '(A person changed the arguments; what ran was: {"amount": "30.00"})',
            "instead of the 49.90 EUR that I asked for, and has been made",
        ),
        (
            "Error: declined by lead: the warranty expired: it is not known. Nothing was done.",
            "was declined. The reason that was given: “the warranty expired: it is not known”. "
            "Nothing was refunded.",
        ),
        (
            "Error: declined by lead, without a reason. Nothing was done.",
            "was declined. Nothing was refunded.",
        ),
        (
            "Error: the approval expired, nobody answered in time (this is no refusal).",
            "Nobody decided about the refund for order 1042 (Teapot, stoneware) in time",
        ),
        (
            "Error: PaymentRefused: the card that paid was closed",
            "did not go through. PaymentRefused: the card that paid was closed",
        ),
        (
            "Error: The tool 'refund' was not done within 30 seconds; whether it took effect is "
            "not known.",
            "do not know yet whether the refund",
        ),
    ],
    ids=[
        "paid",
        "edited",
        "edited-as-told",
        "declined",
        "no-reason",
        "expired",
        "refused",
        "unknown",
    ],
)
def test_it_tells_what_the_tool_answered(content, told):
    so_far = asked_for_refund()

    answer = say(*so_far, *answered(so_far[-1], content))

    assert told in answer.content
    assert not answer.tool_calls


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("where is order 1043?", "on its way and should arrive Thursday"),
        ("Track #1045 please", "is being packed"),
        ("Where is my order 1049", "was cancelled"),
        ("please refund order 1043", "nothing to pay back yet"),
        ("refund 100.00 for order 1042", "cannot pay back more than the 49.90 EUR"),
    ],
)
def test_it_answers_from_the_order(text, told):
    user = Message.user(text)
    lookup = say(user)
    order_id = lookup.tool_calls[0].arguments["order_id"]

    answer = say(user, lookup, *answered(lookup, order(order_id)))

    assert told in answer.content
    assert not answer.tool_calls


def test_an_unknown_order_is_not_found():
    user = Message.user("please refund order 9999")
    lookup = say(user)

    answer = say(user, lookup, *answered(lookup, "Error: OrderNotFound: There is no order 9999."))

    assert answer.content == "I find no order 9999. Is the number right?"


@pytest.mark.parametrize("text", ["hello", "Thank you!", "", "What can you do?"])
def test_chit_chat_gets_an_answer_without_a_call(text):
    answer = say(Message.user(text))

    assert "Order 1042" in answer.content
    assert not answer.tool_calls


def test_it_asks_which_order_and_understands_the_bare_number():
    first = Message.user("I want my money back")
    which = say(first)
    assert "Which order" in which.content

    second = Message.user("1042")
    lookup = say(first, which, second)
    then = say(first, which, second, lookup, *answered(lookup, order("1042")))

    assert [call.name for call in then.tool_calls] == ["refund"]


def test_it_points_back_to_the_order_before():
    wish = read_wish(
        [Message.user("where is order 1042?"), Message.assistant("..."), Message.user("refund it")]
    )

    assert (wish.kind, wish.orders) == ("refund", ("1042",))


def test_two_orders_are_looked_up_and_refunded_in_parallel():
    user = Message.user("Orders 1042 and 1046 arrived broken, refund both")
    lookup = say(user)
    so_far = [user, lookup, *answered(lookup, order("1042"), order("1046"))]

    ask = say(*so_far)

    assert [call.arguments["amount"] for call in ask.tool_calls] == ["49.90", "129.00"]
    done = '{"refund_id": "re_1", "order_id": "1042", "amount": "49.90"}'
    answer = say(*so_far, ask, *answered(ask, done, "Error: PaymentRefused: no"))
    assert "re_1" in answer.content
    assert "order 1046 (Cast-iron pan) did not go through" in answer.content


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("refund 15.00 of order 1042", "15.00"),
        ("refund 15,50 EUR of 1042", "15.50"),
        ("refund 15 euros of 1042", "15"),
        ("refund €15.00 of 1042", "15.00"),
    ],
)
def test_it_reads_the_amount(text, amount):
    wish = read_wish([Message.user(text)])

    assert (wish.orders, str(wish.amount)) == (("1042",), amount)


def test_a_later_turn_may_reuse_the_call_ids_of_an_earlier_one():
    so_far = asked_for_refund()
    done = '{"refund_id": "re_1", "order_id": "1042", "amount": "49.90"}'
    so_far += answered(so_far[-1], done)
    so_far += [say(*so_far), Message.user("please refund order 1041 too")]

    lookup = say(*so_far)

    assert lookup.tool_calls[0].id == so_far[1].tool_calls[0].id
    assert calls_of_turn([*so_far, lookup]) == []
    ask = say(*so_far, lookup, *answered(lookup, order("1041")))
    assert shown(ask)[0][1]["order_id"] == "1041"


def test_a_receipt_is_sent_when_asked_for():
    user = Message.user("send me the receipt for order 1042")
    lookup = say(user)

    ask = say(user, lookup, *answered(lookup, order("1042")))

    assert shown(ask) == [("send_receipt", {"order_id": "1042"})]
