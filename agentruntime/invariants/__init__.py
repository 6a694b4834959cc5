"""What must be true of the stored history, each as a query that finds nothing.

`find_violations` runs them; other apps add theirs with `register_invariants`. Read-only, one pass
per table, and limited to some threads where asked: fit for a nightly run on a real database.
"""

from agentruntime.invariants import control, questions, state, tools, turns  # noqa: F401
from agentruntime.invariants.core import (
    Invariant,
    Scope,
    Violation,
    find_violations,
    invariants,
    register_invariants,
)

__all__ = [
    "Invariant",
    "Scope",
    "Violation",
    "find_violations",
    "invariants",
    "register_invariants",
]
