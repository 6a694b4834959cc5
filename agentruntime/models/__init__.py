"""The nouns: what is stored, and every legal change of one row.

The write protocol, which the rest of the runtime refers to:

1.  The database is the only truth. The broker is a doorbell, the cache a copy, an event news:
    each may be lost, late or doubled, and nothing is lost or done twice.
2.  Authority is a value. A function that writes for a run takes its `Lease`; each claim hands out
    a higher fencing token, and a write with an old one is refused (`LeaseLost`).
3.  Locks are taken in this order, always: Run, Thread, ToolExecution, Interrupt, Approval.
4.  A step is one transaction: its checkpoint at the expected version + 1, its messages, its events,
    the head moved, the *next* node named. A wrong version is `StaleState`.
5.  A tool call is intent, act, record: the intent is committed before the call starts, the outcome
    as soon as it returns. A recorded outcome is returned, never computed again.
6.  A pause is one transaction: the questions, the status, the lease given back.
7.  The first answer to a question wins, by a conditional update; the answer and the wake-up of the
    run are one transaction.
8.  After the commit only: the doorbell, the cache, live news. A queued run that nobody has claimed
    is itself the outbox; the sweep finds it.
9.  The clock is the database's, in the query.
10. No transaction is open while a node, a tool or a model works (a transactional tool excepted:
    that is what it is), and the thread gives its connection back meanwhile.
"""

from agentruntime.models.branch_step import BranchStep
from agentruntime.models.checkpoint import Checkpoint
from agentruntime.models.clock import DatabaseTime, StatementTime
from agentruntime.models.event import Event
from agentruntime.models.interrupt import Interrupt, InterruptKind, InterruptStatus
from agentruntime.models.mcp_tool import McpTool
from agentruntime.models.message import Message
from agentruntime.models.rate_window import RateWindow
from agentruntime.models.run import ACTIVE, ENDED, RETRYABLE, Lease, Run, RunStatus
from agentruntime.models.stored_json import StoredJSON, Unreadable
from agentruntime.models.tenancy import tenant_of
from agentruntime.models.thread import BusyPolicy, Thread
from agentruntime.models.token_grant import TokenGrant
from agentruntime.models.tool_execution import (
    SETTLED,
    UNSETTLED,
    CallKind,
    CallStatus,
    ToolExecution,
)
from agentruntime.models.webhook import DeliveryStatus, WebhookDelivery, WebhookEndpoint

__all__ = [
    "ACTIVE",
    "ENDED",
    "RETRYABLE",
    "SETTLED",
    "UNSETTLED",
    "BranchStep",
    "BusyPolicy",
    "CallKind",
    "CallStatus",
    "Checkpoint",
    "DatabaseTime",
    "DeliveryStatus",
    "Event",
    "Interrupt",
    "InterruptKind",
    "InterruptStatus",
    "Lease",
    "McpTool",
    "Message",
    "RateWindow",
    "Run",
    "RunStatus",
    "StatementTime",
    "StoredJSON",
    "Thread",
    "TokenGrant",
    "ToolExecution",
    "Unreadable",
    "WebhookDelivery",
    "WebhookEndpoint",
    "tenant_of",
]
