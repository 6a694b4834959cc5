"""What the runtime announces. Each signal says when it is sent and what comes with it.

Receivers inside a transaction may write to the database: their rows exist if and only if the
change does. They must not talk to anything else.
"""

from django.dispatch import Signal

interrupt_opened = Signal()
"""Inside the transaction that pauses a run. `interrupt`: the new `Interrupt`."""

interrupt_closed = Signal()
"""Inside the transaction that ends a question without an answer. `interrupt`, its status set."""

call_settled = Signal()
"""Inside the transaction that records how a call ended. `execution`: the `ToolExecution`."""

gated_call_starting = Signal()
"""Inside the transaction that starts an approved call. `execution`, `interrupt`. A receiver that
returns text refuses the start, and the model is told the text."""

run_ended = Signal()
"""Inside the transaction that ends a run. `run`, its status set."""

recorded = Signal()
"""Inside the transaction that stores events. `thread`, `events`: the new `Event` rows, in order."""

committed = Signal()
"""After a commit that stored events. `thread_id`, `run_id`, `seq` (the newest), `types`."""

progressed = Signal()
"""At once, from inside a working node or tool, never stored. `thread_id`, `run_id`, `type`,
`data`.
"""

counted = Signal()
"""Something an operator counts. `name` (without the prefix), `value`, `attributes`."""

noticed = Signal()
"""Something an operator reads. `level`, `event`, `facts`; `exc_info` where there is one."""

swept = Signal()
"""Once per sweep of a worker process, outside of any transaction: due times of other apps."""
