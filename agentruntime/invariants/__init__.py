"""What must be true of the stored history, each as a query that finds nothing.

`find_violations` runs them. Another app adds its own in a module `invariants` of that app, which
calls `register_invariants` and is found the way `agents.py` is. Read-only, one pass per table, and
limited to some threads where asked: fit for a nightly run on a real database.
"""

from agentruntime.invariants import branches, control, questions, state, tools, turns  # noqa: F401
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
