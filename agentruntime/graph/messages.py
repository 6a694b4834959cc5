"""What a model reads and writes: `Message` and `ToolCall`, frozen, in the words of the model
APIs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CALL_ID = 200

Role = Literal["system", "user", "assistant", "tool"]


def new_id() -> str:
    """Return a fresh message id: a random UUID as text."""
    return str(uuid.uuid4())


class ToolCall(BaseModel):
    """One call that a model asks for.

    `arguments` is an object where the provider sent one; text that was no JSON object is kept as
    it came, and the model is told so. `extra` holds provider fields that must be sent back
    unchanged.
    """

    model_config = ConfigDict(frozen=True)

    id: str = ""
    name: str
    arguments: Any = Field(default_factory=dict)
    extra: dict[str, Any] = Field(default_factory=dict)


class Message(BaseModel):
    """One message of a conversation. Made with `user`, `assistant`, `system` or `tool`."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=new_id)
    role: Role
    content: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str = ""
    extra: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def system(cls, content: str, **fields: Any) -> Message:
        return cls(role="system", content=content, **fields)

    @classmethod
    def user(cls, content: str, **fields: Any) -> Message:
        return cls(role="user", content=content, **fields)

    @classmethod
    def assistant(
        cls, content: str = "", *, tool_calls: Sequence[ToolCall] = (), **fields: Any
    ) -> Message:
        return cls(role="assistant", content=content, tool_calls=list(tool_calls), **fields)

    @classmethod
    def tool(cls, content: str, *, tool_call_id: str, **fields: Any) -> Message:
        return cls(role="tool", content=content, tool_call_id=tool_call_id, **fields)

    def settled(self, thread_id: uuid.UUID) -> Message:
        """Return this message as it is stored: its id a UUID, its calls with ids of their own.

        Providers repeat a call id within a message, or leave it empty; a repeat gets its position
        appended. An id that is no UUID is turned into one that is the same for the same thread.
        """
        changes: dict[str, Any] = {}
        if (ident := _as_uuid(self.id, thread_id)) != self.id:
            changes["id"] = ident
        if (calls := _with_own_ids(self.tool_calls)) != self.tool_calls:
            changes["tool_calls"] = calls
        return self.model_copy(update=changes) if changes else self


def _as_uuid(ident: str, thread_id: uuid.UUID) -> str:
    try:
        return str(uuid.UUID(ident))
    except ValueError:
        return str(uuid.uuid5(thread_id, ident)) if ident else new_id()


def _plain_call_id(ident: str) -> str:
    """Return a call id as it is, or a digest of one that no column or key could hold."""
    if len(ident) <= MAX_CALL_ID and ":once:" not in ident and ident.isprintable():
        return ident
    return f"call-{hashlib.sha256(ident.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _with_own_ids(calls: list[ToolCall]) -> list[ToolCall]:
    taken: set[str] = set()
    settled = []
    for position, call in enumerate(calls):
        own = _plain_call_id(call.id)
        ident = own if own and own not in taken else f"{own or 'call'}-{position}"
        while ident in taken:
            ident += f"-{position}"
        taken.add(ident)
        settled.append(call if ident == call.id else call.model_copy(update={"id": ident}))
    return settled


def open_calls(messages: Sequence[Message]) -> tuple[Message | None, list[ToolCall]]:
    """Return the last assistant message and those of its calls that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.tool_call_id)
        elif message.role == "assistant":
            return message, [call for call in message.tool_calls if call.id not in answered]
    return None, []
