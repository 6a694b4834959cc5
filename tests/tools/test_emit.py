"""What a node or tool tells while it works: heard at once, from any thread, never stored."""

import threading

from agentruntime.graph import Context, create_agent, tool
from agentruntime.models import Event
from agentruntime.signals import progressed
from tests.agents import agent, asks_for, call, registered


def hearing(drive, *args, **options):
    """Drive a run and return it with what was told meanwhile."""
    heard = []

    def hear(*, type, data, **_):
        heard.append((type, data))

    progressed.connect(hear)
    try:
        return drive(*args, **options), heard
    finally:
        progressed.disconnect(hear)


def test_a_tool_tells_how_far_it_is_and_nothing_of_it_is_stored(drive, look):
    @tool
    def paint(ctx: Context) -> str:
        """Paint."""
        seen = {"share": 0.5}
        ctx.emit(seen)
        seen["share"] = 1.0  # what was told stays as it was
        other = threading.Thread(target=ctx.emit, args=("from beside",))
        other.start()
        other.join()
        for odd in ("x" * 20_000, object(), float("nan"), None):
            ctx.emit(odd)
        return "done"

    with agent([paint], [call("paint")]) as name:
        run, heard = hearing(drive, name)
    key = look.calls(run)[0].call_key
    told = [data for kind, data in heard if kind == "tool.progress"]
    assert {(one["node"], one["call_key"]) for one in told} == {("tools", key)}
    assert [one["data"] for one in told] == [
        {"share": 0.5}, "from beside", {"too_long": 20_002}, {"unreadable": "object"},
        {"unreadable": "float"}, None,
    ]  # fmt: skip
    assert run.status == "completed"
    assert not Event.objects.filter(run=run, type="tool.progress").exists()


def test_a_watcher_that_fails_costs_the_tool_nothing(drive, look):
    @tool
    async def paint(ctx: Context) -> str:
        """Paint."""
        ctx.emit(1)
        return "done"

    def fails(**_):
        raise ValueError("no ears")

    progressed.connect(fails)
    try:
        with registered(create_agent(model=asks_for([call("paint")]), tools=[paint])) as name:
            run = drive(name)
    finally:
        progressed.disconnect(fails)
    assert look.calls(run)[0].result == "done"
