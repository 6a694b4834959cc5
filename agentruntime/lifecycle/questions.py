"""The questions of one node call or tool call: which were asked before, which has which answer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from agentruntime.graph.json_values import NotJson, check_json, check_text, digest
from agentruntime.models import Interrupt, InterruptKind, InterruptStatus
from agentruntime.schemas import check_is_schema


@dataclass(frozen=True)
class Question:
    """A question to put: its place is (scope, digest of the payload, occurrence among equals)."""

    scope: str
    payload: Any
    occurrence: int = 0
    kind: str = InterruptKind.QUESTION
    message: str = ""
    response_schema: Any = None
    tool_execution_id: int | None = None
    expires_at: datetime | None = None
    kept: uuid.UUID | None = None
    """The interrupt that asks this already: it is never opened again, whatever became of it."""

    @property
    def digest(self) -> str:
        return digest(self.payload)


@dataclass
class Answers:
    """The answered and open interrupts of one scope; hands out answers in the order of asking."""

    scope: str
    rows: list[Interrupt] = field(default_factory=list)
    tool_execution_id: int | None = None
    asked: list[Question] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def begin_again(self) -> None:
        """Count the questions anew: the code that asks starts from its first line."""
        self.asked.clear()
        self._counts.clear()

    def look_up(self, payload: Any, message: str, schema: Any) -> Interrupt | None:
        """Return the interrupt that answers this question, or None; then it is noted as asked.

        Raises `NotJson` for what cannot be stored, and for a schema that is none.
        """
        check_json(payload, path="payload")
        if not isinstance(message, str):
            raise NotJson("message", "text was expected")
        check_text(message, "message")
        key = digest(payload)
        occurrence = self._counts.get(key, 0)
        self._counts[key] = occurrence + 1
        for row in self.rows:
            if (row.digest, row.occurrence, row.status) == (
                key,
                occurrence,
                InterruptStatus.ANSWERED,
            ):
                return row
        wanted = as_schema(schema)
        if wanted is not None:
            check_is_schema(wanted, "response_schema")
        self.asked.append(
            Question(
                scope=self.scope,
                payload=payload,
                occurrence=occurrence,
                message=message,
                response_schema=wanted,
                tool_execution_id=self.tool_execution_id,
            )
        )
        return None


def as_schema(schema: Any) -> Any:
    """Return a JSON Schema as it is, and the schema of a type."""
    if schema is None or isinstance(schema, dict | bool):
        return schema
    return TypeAdapter(schema).json_schema()


def load_answers(
    thread_id: uuid.UUID, scopes: list[str], kinds: tuple[str, ...] = (InterruptKind.QUESTION,)
) -> dict[str, list[Interrupt]]:
    """Return the interrupts of some scopes, oldest first, by scope."""
    found: dict[str, list[Interrupt]] = {scope: [] for scope in scopes}
    rows = Interrupt.objects.filter(thread_id=thread_id, scope__in=scopes, kind__in=kinds)
    for row in rows.order_by("created_at", "id"):
        found[row.scope].append(row)
    return found
