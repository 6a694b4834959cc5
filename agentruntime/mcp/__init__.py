"""Tools of MCP servers: known from the database, called over stdio or streamable HTTP.

What a server says about its tools is not trusted: a person is asked before each call unless the
host says otherwise, a call counts as `"once"`, and a tool that its server describes otherwise than
when it was let in needs a person again. Needs the extra `mcp`.
"""

from agentruntime.mcp.connection import close_connections
from agentruntime.mcp.source import McpSource, mcp_tools

__all__ = ["McpSource", "close_connections", "mcp_tools"]
