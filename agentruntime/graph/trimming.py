"""What of a long conversation a model is shown. What is stored stays whole.

A policy is a function of the messages and of nothing else, so a step that is repeated shows the
same. A call and its results are kept or dropped together; while a call waits for its result nothing
is dropped; the message that the turn is about, the user's last, is always kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentruntime.graph.messages import Message, open_calls

ContextPolicy = Callable[[Sequence[Message]], list[Message]]
Unit = list[Message]


@dataclass(frozen=True)
class KeepMessages:
    """Show the newest `limit` messages, system messages not counted.

    The count is of whole units: a turn of calls with its results is shown whole or not at all.
    """

    limit: int

    def __call__(self, messages: Sequence[Message]) -> list[Message]:
        return keep_newest(messages, self.limit, lambda message: 1)


@dataclass(frozen=True)
class KeepTokens:
    """Show the newest messages that take about `limit` tokens (see `estimate_tokens`).

    System messages are not counted, nor are the agent's instructions and tools.
    """

    limit: int

    def __call__(self, messages: Sequence[Message]) -> list[Message]:
        return keep_newest(messages, self.limit, estimate_tokens)


def keep_newest(
    messages: Sequence[Message], limit: int, size: Callable[[Message], int]
) -> list[Message]:
    """Return the newest messages whose sizes sum up to at most `limit`, in whole units.

    Kept whatever their size: system messages, the user's last message and the newest unit. Where
    something is dropped, the first of the others is the user's: an answer without its question
    means nothing.
    """
    if open_calls(messages)[1]:
        return list(messages)
    units = _units(messages)
    start, anchor = _place(units, limit, size)
    return [
        message
        for n, unit in enumerate(units)
        if n >= start or n == anchor or unit[0].role == "system"
        for message in unit
    ]


def dropped(messages: Sequence[Message], limit: int, size: Callable[[Message], int]) -> int:
    """Return how many messages stand before the newest ones that `keep_newest` keeps."""
    units = _units(messages)
    return sum(len(unit) for unit in units[: _place(units, limit, size)[0]])


def _place(units: list[Unit], limit: int, size: Callable[[Message], int]) -> tuple[int, int]:
    """Return the first unit of the newest, and that of the user's last message (-1: none)."""
    anchor = max((n for n, unit in enumerate(units) if unit[0].role == "user"), default=-1)
    left = limit - sum(size(one) for n in {anchor, len(units) - 1} if n >= 0 for one in units[n])
    start = len(units) - 1
    while start > 0:
        unit = units[start - 1]
        left -= 0 if start - 1 == anchor or unit[0].role == "system" else sum(map(size, unit))
        if left < 0:
            break
        start -= 1
    while 0 < start < anchor and units[start][0].role != "user":
        start += 1
    return start, anchor


def _units(messages: Sequence[Message]) -> list[Unit]:
    """Return what belongs together: an assistant message with the results that follow it, or one
    message by itself.
    """
    units: list[Unit] = []
    for message in messages:
        if message.role == "tool" and units and units[-1][0].role == "assistant":
            units[-1].append(message)
        else:
            units.append([message])
    return units


def estimate_tokens(message: Message) -> int:
    """Return about how many tokens `message` takes: a third of its bytes, and four for its frame.

    Rather too many than too few: English text has about four bytes to a token.
    """
    calls = "".join(
        call.name + json.dumps(call.arguments, ensure_ascii=False) for call in message.tool_calls
    )
    return 4 + (len((message.content + calls).encode("utf-8", "replace")) + 2) // 3
