"""`Message`: one row of a conversation, numbered per thread without holes, never changed."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models

from agentruntime.graph.messages import Message as MessageValue
from agentruntime.graph.messages import ToolCall
from agentruntime.models.stored_json import StoredJSON
from agentruntime.models.thread import Thread


class Message(models.Model):
    """A message as it was appended, with the version of the checkpoint that brought it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="messages", db_index=False)
    ordinal = models.PositiveIntegerField()
    version = models.PositiveIntegerField()
    role = models.CharField(max_length=10)
    content = models.TextField(blank=True, default="")
    tool_calls = StoredJSON(default=list, blank=True)
    tool_call_id = models.CharField(max_length=255, blank=True, default="")
    extra = StoredJSON(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    VALUE_COLUMNS = ("id", "role", "content", "tool_calls", "tool_call_id", "extra")

    class Meta:
        db_table = "agentruntime_message"
        constraints = (
            models.UniqueConstraint(
                fields=["thread", "ordinal"], name="message_ordinal_once_per_thread"
            ),
        )

    def __str__(self) -> str:
        return f"{self.role} {self.ordinal}"

    @staticmethod
    def columns_of(value: MessageValue) -> dict[str, Any]:
        """Return what a message brings into its row, as JSON-like values."""
        return {
            "id": value.id,
            "role": value.role,
            "content": value.content,
            "tool_calls": [
                call.model_dump(mode="json", exclude_defaults=True) for call in value.tool_calls
            ],
            "tool_call_id": value.tool_call_id,
            "extra": value.extra,
        }

    @staticmethod
    def value_of(
        ident: uuid.UUID, role: Any, content: str, calls: Any, call_id: str, extra: Any
    ) -> MessageValue:
        """Return the message that these columns (`VALUE_COLUMNS`) hold: checked before."""
        return MessageValue.model_construct(
            id=str(ident),
            role=role,
            content=content,
            tool_calls=[ToolCall.model_validate(one) for one in calls],
            tool_call_id=call_id,
            extra=extra,
        )

    def to_value(self) -> MessageValue:
        """Return the message that the row holds."""
        return self.value_of(*(getattr(self, name) for name in self.VALUE_COLUMNS))
