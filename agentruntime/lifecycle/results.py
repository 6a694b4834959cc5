"""What one step comes to: a result to commit, a wait for a person, or a wait for a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentruntime.graph.definition import Goto
from agentruntime.graph.messages import Message
from agentruntime.lifecycle.questions import Question


@dataclass(frozen=True)
class NodeResult:
    """What a node brings: messages to append, an update or deltas to join, and perhaps where to go.

    `replaced` are field values that replace what is there, past any reducer (a returned `State`).
    """

    messages: Sequence[Message] = ()
    update: Mapping[str, Any] = field(default_factory=dict)
    deltas: Mapping[str, list[tuple[str, Any]]] = field(default_factory=dict)
    replaced: Mapping[str, Any] = field(default_factory=dict)
    goto: Goto = ""
    leftover: Sequence[str] = ()
    """Scopes in which questions may still be open that nobody needs to answer any more."""


@dataclass(frozen=True)
class Waiting:
    """People must answer first. `scopes` are those in which questions may be open; `wake_in` says
    after how many seconds there is something to do without an answer.
    """

    questions: Sequence[Question]
    scopes: Sequence[str]
    wake_in: float | None = None
    calls: Sequence[int] = ()
    """Ledger rows that go on elsewhere: if one has its outcome by now, there is nothing to wait
    for."""


@dataclass(frozen=True)
class Later:
    """There is nothing to do for so many seconds."""

    seconds: float
    calls: Sequence[int] = ()
    """Ledger rows that go on elsewhere, as in `Waiting`."""
