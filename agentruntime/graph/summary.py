"""A long conversation told in short: a summary that a model writes, in a step of its own.

The step is like any other: its model call counts against the budget, its result is stored in the
state field `summary`, and what is stored of the conversation stays whole. It is taken only between
turns: while a call waits for its result nothing is summed up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, create_model

from agentruntime.exceptions import InvalidGraph
from agentruntime.graph.messages import Message, open_calls
from agentruntime.graph.state import State
from agentruntime.graph.trimming import dropped, estimate_tokens

ASK = (
    "Sum up the conversation below for the assistant who goes on with it. Keep names, numbers, "
    "dates, ids, decisions, what tools did, and what is still open. Answer with the summary only."
)
TOLD = "(What was said before, in short:)\n"
MAX_LINE = 8000
"""How many characters of one message the summary is made from."""


class Summary(BaseModel):
    """`text` stands for the first `count` messages of the thread."""

    count: int = 0
    text: str = ""


@dataclass(frozen=True)
class Summarize:
    """Show a summary in the place of old messages, once they take more than `limit` tokens.

    Then all but the newest, of about `keep` tokens (by default half of `limit`), are summed up,
    together with the summary before. `model` writes it, by default the agent's own; it is asked as
    `ask` says. Which messages stay together is as with `KeepTokens`.
    """

    limit: int
    keep: int | None = None
    model: Any = None
    ask: str = ASK

    def state(self, base: type[State]) -> type[State]:
        """Return the state class with the field `summary` added. Raises `InvalidGraph`."""
        if "summary" in base.model_fields:
            raise InvalidGraph(graph="", problem="its state has a field 'summary' of its own")
        return create_model(base.__name__, __base__=base, summary=(Summary, Summary()))

    def shown(self, state: Any) -> list[Message]:
        """Return what the model is shown: the summary, and what came after it."""
        summary, messages = state.summary, state.messages
        if not summary.count:
            return list(messages)
        old, new = messages[: summary.count], messages[summary.count :]
        kept = [one for one in old if one.role == "system"]
        if not any(one.role == "user" for one in new):  # the question that the turn is about
            kept += [one for one in old if one.role == "user"][-1:]
        told = [Message.user(TOLD + summary.text)] if summary.text else []
        systems = [one for one in kept if one.role == "system"]
        return [*systems, *told, *(one for one in kept if one.role != "system"), *new]

    def is_due(self, state: Any) -> bool:
        """Say whether something is to be summed up before the model is asked."""
        new = state.messages[state.summary.count :]
        if open_calls(state.messages)[1] or sum(map(estimate_tokens, new)) <= self.limit:
            return False
        return self._folded(new) > 0

    def _folded(self, new: Sequence[Message]) -> int:
        keep = self.limit // 2 if self.keep is None else self.keep
        return dropped(new, keep, estimate_tokens)

    def question(self, state: Any) -> list[Message]:
        """Return what the model is asked that writes the summary."""
        summary = state.summary
        new = state.messages[summary.count :]
        before = [f"(Before that:) {summary.text}"] if summary.text else []
        lines = [_line(one) for one in new[: self._folded(new)] if one.role != "system"]
        return [Message.system(self.ask), Message.user("\n\n".join([*before, *lines]))]

    def result(self, state: Any, answer: Message) -> dict[str, Any]:
        """Return the state update that an answer means. An empty one stands for nothing said: then
        the old messages are just not shown any more.
        """
        count = state.summary.count
        folded = self._folded(state.messages[count:])
        return {"summary": Summary(count=count + folded, text=answer.content.strip())}


def _line(message: Message) -> str:
    calls = [
        f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
        for call in message.tool_calls
    ]
    who = "result" if message.role == "tool" else message.role
    text = " ".join([message.content, *(f"[calls {one}]" for one in calls)]).strip()
    return f"{who}: {text if len(text) <= MAX_LINE else text[:MAX_LINE] + ' […]'}"
