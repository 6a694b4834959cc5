"""The verbs: one file per thing that happens to a run. These are the ones to call from outside."""

from agentruntime.lifecycle.delete import delete_thread
from agentruntime.lifecycle.fork import fork_thread
from agentruntime.lifecycle.line import let_next_in
from agentruntime.lifecycle.prune import prune_events
from agentruntime.lifecycle.recover import recover_runs, retry_run
from agentruntime.lifecycle.resume import resume_run
from agentruntime.lifecycle.start import start_run
from agentruntime.lifecycle.stop import stop_run
from agentruntime.lifecycle.wait import wait_for_run

__all__ = [
    "delete_thread",
    "fork_thread",
    "let_next_in",
    "prune_events",
    "recover_runs",
    "resume_run",
    "retry_run",
    "start_run",
    "stop_run",
    "wait_for_run",
]
