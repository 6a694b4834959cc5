"""The facts that every log line of a piece of work carries: its run, thread, node, fencing token.

A context variable and nothing else; structlog's own would load a terminal library into every
process (a quarter of the import). A host's formatter finds the facts as `record.facts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_facts: ContextVar[Mapping[str, Any]] = ContextVar("facts", default=_NOTHING)


@contextmanager
def bound(**facts: Any) -> Iterator[None]:
    """Add facts to the log lines of this block, and of what it starts."""
    token = _facts.set({**_facts.get(), **facts})
    try:
        yield
    finally:
        _facts.reset(token)


def bound_facts() -> dict[str, Any]:
    """Return the facts that are bound here."""
    return dict(_facts.get())
