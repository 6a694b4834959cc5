"""What a broken answer of an MCP server says about its call: that nobody knows what it did."""

import json

import pytest

from agentruntime.mcp import mcp_tools
from agentruntime.mcp.transports import UNREADABLE, Line, _message
from agentruntime.models import Interrupt
from tests.agents import agent, call
from tests.mcp.rude import JSON, RudeServer, result

PAID = {"content": [{"type": "text", "text": "paid"}]}


def error(request, code, message):
    told = {"code": code, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": told}).encode()


@pytest.fixture
def pay(drive, look):
    """Let an agent call the tool of a server that answers like this; return its ledger row."""

    def go(answer, turns=1):
        with RudeServer(answer) as server:
            source = mcp_tools("rude", url=server.url, approval=False, timeout=10)
            asked = [[call("rude__pay", f"call_{number}")] for number in range(turns)]
            with agent([source], *asked) as name:
                run = drive(name)
            source.close()
        return run, look.calls(run)[0], server.calls

    return go


@pytest.mark.parametrize(
    "said",
    [
        (502, "text/html", b"<html>Bad gateway"),
        (504, "text/plain", b""),
        (500, "text/plain", b"out of memory"),
        (200, JSON, b"{not json"),
        (200, JSON, b""),
        (200, "text/html", b"<html>Please log in"),
        (202, JSON, b""),
        (200, "text/event-stream", b"event: message\ndata: {bad\n\n"),
        (200, "text/event-stream", b": nothing\n\n"),
    ],
)
def test_a_call_that_got_no_answer_that_can_be_read_is_not_made_again(pay, said):
    run, row, calls = pay(lambda request: said, turns=3)

    assert (run.status, row.status, calls) == ("interrupted", "unknown", 1)
    assert Interrupt.objects.get(run=run).kind == "outcome"


def test_text_that_is_none_is_no_reason_to_wait_for_the_timeout(pay):
    text = {"content": [{"type": "text", "text": "a\ud800"}]}
    _, row, _ = pay(lambda request: (200, JSON, result(request, text)))

    assert row.status == "unknown"
    assert "Failed to parse" in row.error["detail"]


@pytest.mark.parametrize(
    ("text", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{"a":"\\ud800"}}', 3),
        (b'{"jsonrpc":"2.0","id":"x","error":{"code":"none","message":null}}', "x"),
    ],
)
def test_over_a_pipe_too_a_broken_answer_ends_the_request_that_it_answers(text, ident):
    line = Line()
    line.add(text)
    told = _message(line).message

    assert (told.id, told.error.message) == (ident, UNREADABLE)


@pytest.mark.parametrize("text", [b"Loading ...", b"[1]", b'{"method":"\\ud800","id":3}', b"\xff"])
def test_what_answers_nothing_ends_nothing(text):
    line = Line()
    line.add(text)

    assert isinstance(_message(line), ValueError)


@pytest.mark.parametrize(
    ("status", "code"), [(200, -32000), (200, -32050), (400, -32602), (500, -32603)]
)
def test_an_error_of_the_server_is_one_of_the_tool_whatever_its_number(pay, status, code):
    said = "not enough money"
    run, row, _ = pay(lambda request: (status, JSON, error(request, code, said)))

    assert (run.status, row.status) == ("completed", "failed")
    assert said in row.error["detail"]


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_call_that_is_refused_at_the_door_was_not_made(pay, status):
    run, row, _ = pay(lambda request: (status, "text/plain", b""))

    assert (run.status, row.status) == ("completed", "failed")


def test_a_server_that_began_anew_is_greeted_anew(drive, look):
    with RudeServer(lambda request: (200, JSON, result(request, PAID))) as server:
        source = mcp_tools("rude", url=server.url, approval=False, timeout=10)
        with agent([source], [call("rude__pay")]) as name:
            assert look.calls(drive(name))[0].result == "paid"
            server.forget()
            assert look.calls(drive(name))[0].result == "paid"
        source.close()
    assert server.calls == 2
