"""What a server offers, as the database keeps it: known after a restart, pinned, changed, gone."""

import threading
from types import SimpleNamespace

import pytest
from django.db import connections

from agentruntime.lifecycle import retry_run
from agentruntime.mcp.catalogue import accept_tool, read_catalogue, store_listing
from agentruntime.mcp.listing import read_listing
from agentruntime.models import McpTool
from tests.agents import agent, call
from tests.mcp.conftest import FREE, adds


def test_the_catalogue_is_known_after_a_restart_without_listing(drive, look, site):
    with agent([site.source(**FREE)], [adds()]) as name:
        drive(name)
    listed = len(site.lines("listings"))
    site.end()  # the server is gone, and so is what the process remembers
    again = site.source(**FREE)
    assert {one.name for one in again.tools()} >= {"habits__add", "habits__odd_name__"}
    assert next(one for one in again.tools() if one.name == "habits__add").schema["required"] == [
        "a", "b",
    ]  # fmt: skip
    assert len(site.lines("listings")) == listed


def test_a_tool_whose_schema_is_none_is_left_out_and_the_others_are_offered():
    def offered(name, **properties):
        schema = {"type": "object", "properties": properties}
        return SimpleNamespace(name=name, description="", input_schema=schema)

    listing = read_listing(
        "habits",
        [
            offered("good", when={"type": "string", "pattern": r"^\p{L}+$"}),
            offered("worse", when={"type": "moment"}),
            offered("worst", when={"type": "string", "minLength": "one"}),
        ],
    )
    assert [one["name"] for one in listing] == ["good"]


@pytest.mark.parametrize("habit", ["changed-schema", "changed-text"])
def test_a_changed_tool_needs_a_person_whatever_the_policy_says(drive, look, site, decide, habit):
    with agent([site.source(**FREE)], [adds()]) as name:
        assert drive(name).status == "completed"
    site.end()
    site.behave(habit)
    site.begin()
    asked = {"force": True} if habit == "changed-schema" else {}
    with agent([site.source(**FREE)], [call("habits__add", a=1, b=2, **asked)]) as name:
        run = drive(name)
        assert run.status == "interrupted"
        assert "describes it otherwise" in look.open(run)[0].message
        decide(run)
        assert drive(run=run).status == "completed"
        assert accept_tool("habits", "add")
        site.sources[-1]._read_at = float("-inf")
        assert drive(name).status == "completed"


def test_an_approval_does_not_cover_a_tool_that_changed_while_it_waited(drive, look, site, decide):
    source = site.source()
    with agent([source], [adds()]) as name:
        run = drive(name)
        decide(run)
        site.behave("changed-text")
        source._listed_at = float("-inf")  # it is time to ask the server again
        run = drive(run=run)
        assert (run.status, site.lines("calls")) == ("interrupted", [])
        decide(run, "decline", reason="not this one")
        run = drive(run=run)
    assert (run.status, look.calls(run)[0].status) == ("completed", "declined")


def test_a_change_that_is_seen_only_at_the_call_stops_it(drive, look, site):
    source = site.source(**FREE)
    with agent([source], [adds()]) as name:
        drive(name)
        site.behave("changed-schema")
        source.connection.is_stale = True  # as after a reconnect, or a word from the server
        run = drive(name)
    assert look.calls(run)[0].error["code"] == "MCP_002"
    assert site.lines("calls") == ["add"]


def test_a_name_that_stands_twice_is_offered_by_nobody(drive, site):
    site.behave("twice")
    source = site.source()
    source.load()
    names = {one.name for one in source.tools()}
    assert "habits__fail" in names
    assert not {"habits__add", "habits__odd_name__"} & names


def test_gone_tools_are_offered_no_more_and_a_retry_finds_them_again(drive, site):
    source = site.source(**FREE)
    source.load()
    McpTool.objects.filter(name="add").update(is_offered=False)
    source._read_at = float("-inf")
    with agent([source], [adds()]) as name:
        run = drive(name)
        assert run.status == "completed"
        with pytest.raises(Exception, match="cannot be retried"):
            retry_run(run_id=run.pk)


def listing(name, description="d"):
    return {"name": name, "description": description, "schema": {"type": "object"}}


def test_processes_that_list_a_new_server_at_once_store_each_tool_once(transactional_db):
    begin, failures = threading.Barrier(6), []

    def store(turn):
        try:
            begin.wait(10)
            for _ in range(3):
                store_listing("crowd", [listing(f"t{n}", f"by {turn}") for n in range(8)])
        except Exception as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=store, args=(turn,)) for turn in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    rows = read_catalogue("crowd")
    assert [row.name for row in rows] == [f"t{n}" for n in range(8)]
    assert len({row.listing["description"] for row in rows}) == 1, "one listing stands, whole"


def test_what_is_let_in_is_what_was_looked_at(transactional_db):
    store_listing("s", [listing("t")])
    store_listing("s", [listing("t", "changed")])
    [seen] = read_catalogue("s")
    store_listing("s", [listing("t", "changed once more")])
    assert not accept_tool("s", "t", seen.digest)
    [row] = read_catalogue("s")
    assert row.is_changed
    assert accept_tool("s", "t", row.digest)
    assert not read_catalogue("s")[0].is_changed


def test_a_tool_that_comes_back_otherwise_is_not_taken_for_a_new_one(transactional_db):
    store_listing("s", [listing("t"), listing("u")])
    store_listing("s", [listing("u")])
    assert [row.name for row in read_catalogue("s")] == ["u"]
    store_listing("s", [listing("t", "changed"), listing("u")])
    assert [(row.name, row.is_changed) for row in read_catalogue("s")] == [
        ("t", True),
        ("u", False),
    ]
