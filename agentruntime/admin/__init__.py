"""Windows on the runtime for staff: read-only, linked to each other, with a few verbs on runs."""

from agentruntime.admin.interrupts import InterruptAdmin
from agentruntime.admin.mcp_tools import McpToolAdmin
from agentruntime.admin.runs import RunAdmin, ThreadAdmin
from agentruntime.admin.webhooks import WebhookDeliveryAdmin, WebhookEndpointAdmin
from agentruntime.admin.windows import CheckpointAdmin, EventAdmin, MessageAdmin, ToolExecutionAdmin

__all__ = [
    "CheckpointAdmin",
    "EventAdmin",
    "InterruptAdmin",
    "McpToolAdmin",
    "MessageAdmin",
    "RunAdmin",
    "ThreadAdmin",
    "ToolExecutionAdmin",
    "WebhookDeliveryAdmin",
    "WebhookEndpointAdmin",
]
