"""Writing an agent: everything that an `agents.py` needs."""

from agentruntime.graph.agent import create_agent
from agentruntime.graph.context import Context
from agentruntime.graph.definition import END, START, Command, Send, StateGraph
from agentruntime.graph.handoffs import agent_tool, handoff, team
from agentruntime.graph.interrupts import interrupt, once
from agentruntime.graph.jobs import Pending
from agentruntime.graph.messages import Message, ToolCall
from agentruntime.graph.registry import get_graph, register
from agentruntime.graph.state import State
from agentruntime.graph.summary import Summarize
from agentruntime.graph.tool_node import ToolNode
from agentruntime.graph.tools import (
    NOT_DONE,
    UNKNOWN,
    ApprovalRule,
    Tool,
    ToolResult,
    client_tool,
    tool,
)
from agentruntime.graph.trimming import KeepMessages, KeepTokens

__all__ = [
    "END",
    "NOT_DONE",
    "START",
    "UNKNOWN",
    "ApprovalRule",
    "Command",
    "Context",
    "KeepMessages",
    "KeepTokens",
    "Message",
    "Pending",
    "Send",
    "State",
    "StateGraph",
    "Summarize",
    "Tool",
    "ToolCall",
    "ToolNode",
    "ToolResult",
    "agent_tool",
    "client_tool",
    "create_agent",
    "get_graph",
    "handoff",
    "interrupt",
    "once",
    "register",
    "team",
    "tool",
]
