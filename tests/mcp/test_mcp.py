"""MCP servers that work, die, hang, change, repeat names and flood: real ones, on both ways."""

import asyncio

import pytest
from django.test import override_settings

from agentruntime.exceptions import InvalidTool
from agentruntime.lifecycle import resume_run
from agentruntime.mcp import mcp_tools
from agentruntime.mcp.transports import MAX_MESSAGE, Line, read_lines
from tests.agents import agent, call
from tests.mcp.conftest import FREE, adds

pytestmark = pytest.mark.database("sqlite")


def test_a_person_is_asked_first_and_the_call_counts_as_once(drive, look, site, decide):
    with agent([site.source()], [adds()]) as name:
        run = drive(name)
        assert run.status == "interrupted"
        assert look.calls(run)[0].effect == "once"
        assert site.lines("calls") == []
        decide(run)
        run = drive(run=run)
    assert (run.status, look.messages(run)[-1]) == ("completed", ("assistant", "3"))
    assert site.lines("calls") == ["add"]


def test_names_that_no_model_takes_and_arguments_of_any_name(drive, look, site):
    odd = [
        call("habits__odd_name__", "a"),
        call("habits__takes", "b", **{"fn": "1", "inbox": "2", "self": "3"}),
    ]
    with agent([site.source(**FREE)], odd) as name:
        run = drive(name)
    assert run.status == "completed"
    assert look.messages(run)[-1][1] == "odd name.é [] | takes ['fn', 'inbox', 'self']"


def test_arguments_are_checked_before_anybody_is_asked(drive, look, site):
    wrong = [call("habits__add", "a", a="1", b=2), call("habits__add", "b", a=1, b=2, c=3)]
    with agent([site.source()], wrong) as name:
        run = drive(name)
    assert (run.status, [one.status for one in look.calls(run)]) == ("completed", ["failed"] * 2)
    assert site.lines("calls") == []


def test_a_tool_that_fails_is_a_tool_error(drive, look, site):
    with agent([site.source(**FREE)], [call("habits__fail")]) as name:
        run = drive(name)
    assert look.messages(run)[-1][1] == "Error: the printer is out of paper"
    assert look.calls(run)[0].error["code"] == "MCP_003"


def test_a_server_that_dies_in_a_call_is_a_tool_error_and_is_reached_again(drive, look, site):
    with agent([site.source(**FREE)], [call("habits__die")]) as name:
        run = drive(name)
    died = look.calls(run)[0]
    assert (run.status, died.status) == ("completed", "failed")
    assert "went away" in died.error["detail"] or "broke" in died.error["detail"]
    site.begin()
    with agent([site.sources[0]], [adds("call_2")]) as name:
        run = drive(name)
    assert look.calls(run)[0].result == "3"


def test_a_call_of_unknown_outcome_is_not_made_again(drive, look, site):
    with agent([site.source(approval=False)], [call("habits__die")]) as name:
        run = drive(name)
        assert (run.status, look.calls(run)[0].status) == ("interrupted", "unknown")
        resume_run(interrupt_id=look.open(run)[0].pk, value={"outcome": "succeeded", "result": 1})
        run = drive(run=run)
    assert (run.status, site.lines("calls")) == ("completed", ["die"])


def test_a_dead_server_is_a_tool_error_and_nothing_was_done(drive, look, site):
    with agent([site.source(**FREE)], [adds()]) as name:
        drive(name)
    site.end()
    there = len(site.lines("calls"))
    if site.kind == "stdio":
        dead = mcp_tools("habits", command=["/nonexistent/server"], connect_timeout=5, **FREE)
    else:
        dead = site.source(connect_timeout=5, **FREE)
    with agent([dead], [adds()]) as name:
        run = drive(name)
    assert (run.status, look.calls(run)[0].error["code"]) == ("completed", "MCP_001")
    assert "Nothing was done" in look.messages(run)[-1][1]
    assert len(site.lines("calls")) == there
    dead.close()


def test_a_server_that_hangs_is_given_up(drive, look, site):
    with agent([site.source(timeout=1.5, **FREE)], [call("habits__hang", "a"), adds("b")]) as name:
        run = drive(name)
    hung, added = look.calls(run)
    assert (run.status, hung.error["code"]) == ("completed", "NODE_TIMEOUT_002")
    assert (added.status, added.result) == ("succeeded", "3")


def test_50_megabytes_are_refused_and_the_call_is_not_repeated(drive, look, site):
    turns = [call("habits__flood")], [adds("call_2")]
    with agent([site.source(approval=False, timeout=120)], *turns) as name:
        run = drive(name)
    flood, added = look.calls(run)
    assert (flood.status, flood.attempts, flood.error["code"]) == (
        "succeeded",
        1,
        "TOOL_RESULT_001",
    )
    assert "longer than 4,194,304 bytes" in flood.error["detail"]
    assert (run.status, added.result) == ("completed", "3"), "the line is as good as before"
    assert site.lines("calls") == ["flood", "add"]


async def test_of_a_line_that_is_too_long_only_the_ends_are_kept():
    stream = asyncio.StreamReader()

    async def write():
        for text in (b'{"id": 1}\n', b'{"result": "', *[b"x" * 500_000] * 30, b'", "id": 7}\n'):
            stream.feed_data(text)
            await asyncio.sleep(0)
        stream.feed_data(b'{"id": 2}\n{"half')
        stream.feed_eof()

    writing = asyncio.create_task(write())
    found = [line async for line in read_lines(stream)]
    await writing
    assert [line.is_too_long for line in found] == [False, True, False]
    assert len(found[1].text) + len(found[1].end) < MAX_MESSAGE + 2 * 65_536
    assert found[1].ident == 7


@pytest.mark.parametrize(
    ("head", "tail", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":12,"result":"', b'"}', 12),
        (b'{"result":{"id":5,"a":"', b'"},"jsonrpc":"2.0","id":"abc"}', "abc"),
        (b'{"result":{"a":"', b'","id":5}}', None),
    ],
)
def test_whose_answer_is_too_long_is_read_where_it_can_be(head, tail, ident):
    line = Line()
    for piece in (head, b"x" * (MAX_MESSAGE + 1), tail):
        line.add(piece)
    assert line.ident == ident


def test_the_hosts_settings_have_the_last_word(drive, look, site, settings):
    policy = {"habits__add": {"approval": False}, "habits__fail": {"approval": True}}
    with override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, "TOOLS": policy}):
        with agent([site.source(approvals={"fail": False})], [adds()]) as name:
            assert drive(name).status == "completed"
        with agent([site.source(approvals={"fail": False})], [call("habits__fail")]) as name:
            assert drive(name).status == "interrupted"


def test_a_policy_from_settings_gates_a_plain_tool(drive, settings):
    from agentruntime.graph import tool

    @tool(approval=None)
    def wipe() -> str:
        """Of a third party."""
        return "wiped"

    policy = {"wipe": {"approval": True, "effect": "once"}}
    held = override_settings(AGENTRUNTIME={**settings.AGENTRUNTIME, "TOOLS": policy})
    with held, agent([wipe], [call("wipe")]) as name:
        assert drive(name).status == "interrupted"
    with agent([wipe], [call("wipe")]) as name:
        assert drive(name).status == "completed"


@pytest.mark.parametrize(
    "wrong",
    [{}, {"command": ["x"], "url": "y"}, {"name": "a b", "url": "y"}, {"name": "a_b", "url": "y"}],
)
def test_a_source_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(InvalidTool):
        mcp_tools(wrong.pop("name", "fine"), **wrong)
