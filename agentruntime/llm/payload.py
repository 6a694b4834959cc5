"""A conversation in the form that every provider takes: each call with its one result.

What is stored is left as it is; only what is sent is put right. A provider refuses a whole thread
for one call without a result, one id used twice or one empty text, and would refuse it for ever.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence

from agentruntime.graph.messages import Message, ToolCall

logger = logging.getLogger(__name__)

NO_RESULT = "No result of this call is recorded."
BLANK_USER = "(an empty message)"
OPENING = "(The conversation begins with the assistant's message.)"
# OpenAI takes ids of at most 40 characters and names of at most 64; Anthropic the letters below.
MAX_ID = 40
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def sendable(
    messages: Sequence[Message], *, plain_ids: bool = False, user_first: bool = False
) -> list[Message]:
    """Return `messages` as they may be sent: results right after their calls and in their order,
    ids unique in the whole list, no empty texts.

    A result belongs to the nearest assistant message before it that has a call of its id. A call
    without one gets a result that says so; a result without a call is left out; other messages that
    stand between follow after. `plain_ids` keeps ids to letters, digits, `_` and `-`; `user_first`
    puts a line before a conversation that begins with the assistant.
    """
    results, orphans = _results_by_call(messages)
    if orphans:
        logger.warning("%d tool results belong to no call and are not sent.", orphans)
    ids = _Ids(PLAIN_ID if plain_ids else None)
    sent: list[Message] = []
    for position, message in enumerate(messages):
        if message.role == "assistant":
            sent += _assistant(message, results.get(position, {}), ids)
        elif message.role == "user" and not message.content.strip():
            sent.append(message.model_copy(update={"content": BLANK_USER}))
        elif message.role == "user" or (message.role == "system" and message.content.strip()):
            sent.append(message)
    return _with_user_first(sent) if user_first else sent


def _results_by_call(messages: Sequence[Message]) -> tuple[dict[int, dict[int, Message]], int]:
    """Return the results by the position of their assistant message and of their call in it."""
    open_calls: dict[str, list[tuple[int, int]]] = {}
    found: dict[int, dict[int, Message]] = {}
    orphans = 0
    for position, message in enumerate(messages):
        if message.role == "assistant":
            fresh: dict[str, list[tuple[int, int]]] = {}
            for index, call in enumerate(message.tool_calls):
                fresh.setdefault(call.id, []).append((position, index))
            open_calls.update(fresh)
        elif message.role == "tool":
            waiting = open_calls.get(message.tool_call_id)
            if waiting:
                where, index = waiting.pop(0)
                found.setdefault(where, {})[index] = message
            else:
                orphans += 1
    return found, orphans


def _assistant(message: Message, results: dict[int, Message], ids: _Ids) -> list[Message]:
    if not message.tool_calls:
        return [message] if message.content.strip() else []
    calls, answers = [], []
    for index, call in enumerate(message.tool_calls):
        sent = ids.give(call.id, f"{message.id}:{index}")
        calls.append(_sent_call(call, sent))
        result = results.get(index)
        if result is None:
            logger.warning("The call %s of message %s has no result.", call.id, message.id)
        answers.append(
            Message.tool(NO_RESULT, tool_call_id=sent)
            if result is None
            else result.model_copy(update={"tool_call_id": sent})
        )
    return [message.model_copy(update={"tool_calls": calls}), *answers]


def _sent_call(call: ToolCall, ident: str) -> ToolCall:
    name = NOT_IN_NAMES.sub("_", call.name.strip())[:64] or "unnamed"
    if ident == call.id and name == call.name:
        return call
    return call.model_copy(update={"id": ident, "name": name})


class _Ids:
    """Gives each call an id that no other call of the payload has; the same for the same place."""

    def __init__(self, allowed: re.Pattern[str] | None) -> None:
        self.allowed, self.taken = allowed, set[str]()

    def give(self, ident: str, place: str) -> str:
        if not self._fits(ident):
            ident = "call_" + hashlib.sha256(f"{place}:{ident}".encode()).hexdigest()[:24]
        self.taken.add(ident)
        return ident

    def _fits(self, ident: str) -> bool:
        if not ident or ident in self.taken or len(ident) > MAX_ID:
            return False
        return self.allowed is None or self.allowed.fullmatch(ident) is not None


def _with_user_first(sent: list[Message]) -> list[Message]:
    start = next((n for n, message in enumerate(sent) if message.role != "system"), len(sent))
    if start < len(sent) and sent[start].role == "user":
        return sent
    return [*sent[:start], Message.user(OPENING), *sent[start:]]
