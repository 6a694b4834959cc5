"""A small MCP server, the shop's warehouse: `python -m agentruntime.demo.stock_server`."""

from __future__ import annotations

SHELVES = {"teapot": 4, "kettle": 0, "darjeeling": 31}


def main() -> None:
    """Serve over stdin and stdout until they close."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("stock")

    @server.tool()
    def in_stock(item: str) -> int:
        """How many of an item are on the shelves."""
        return SHELVES.get(item, 0)

    @server.tool()
    def reorder(item: str, pieces: int) -> str:
        """Order more of an item from its maker."""
        return f"{pieces} of {item} are ordered"

    server.run("stdio")


if __name__ == "__main__":
    main()
