"""The demo's agent with an MCP server: it looks freely and orders when a person says so."""

from tests.mcp.conftest import _by_hand, decide, drive, look  # noqa: F401


def test_what_has_run_out_is_ordered_by_a_person(drive, look, decide):  # noqa: F811
    from agentruntime.demo.stock import warehouse

    try:
        run = drive("stock", "Have we any teapot?")
        assert look.messages(run)[-1][1] == 'teapot: {"result": 4}'
        run = drive("stock", "And a kettle?")
        assert (run.status, look.open(run)[0].payload["arguments"]["pieces"]) == ("interrupted", 10)
        decide(run)
        run = drive(run=run)
    finally:
        warehouse.close()
    assert "10 of kettle are ordered" in look.messages(run)[-1][1]
