"""A structured answer: asked for as a call of a tool, validated, asked for again a few times.

Each attempt is an ordinary step: the call, its result or the reason why it was refused, and the
messages are all stored. The answer itself goes into the state field `output`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError, create_model

from agentruntime.exceptions import AnswerTooEarly, InvalidGraph, OutputInvalid
from agentruntime.graph.messages import Message, open_calls
from agentruntime.graph.state import State, first_problem
from agentruntime.graph.tools import Tool, ToolResult, as_tool

ANSWER = "answer"
FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)


class StructuredOutput:
    """The type of an agent's answer, and how often the model may try to give one per turn."""

    def __init__(self, kind: Any, attempts: int) -> None:
        self.kind, self.attempts = kind, attempts
        self.adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def state(self, base: type[State]) -> type[State]:
        """Return the state class with the field `output` added. Raises `InvalidGraph`."""
        if "output" in base.model_fields:
            raise InvalidGraph(graph="", problem="its state has a field 'output' of its own")
        return create_model(base.__name__, __base__=base, output=(self.kind | None, None))

    def tool(self) -> Tool:
        """Return the tool by which the model answers: it has one argument, the answer."""

        def give(answer: Any, state: Any) -> ToolResult:
            # What it says beside other calls it says without their results.
            turn, _ = open_calls(state.messages)
            if turn is not None and len(turn.tool_calls) > 1:
                raise AnswerTooEarly()
            return ToolResult("The answer was taken.", update={"output": answer})

        give.__annotations__ = {"answer": self.kind}
        description = (
            "Give the final answer. Call this once, by itself, when the results of all other "
            "calls are there."
        )
        return as_tool(give, name=ANSWER, description=description)

    def read_text(self, state: Any) -> dict[str, Any] | None:
        """Take an answer that came as text, if it is one; else let the model try again.

        The node after a message without calls. Raises `OutputInvalid` when that was the last try.
        """
        text = state.messages[-1].content
        fenced = FENCE.fullmatch(text)
        try:
            return {"output": self.adapter.validate_json(fenced[1] if fenced else text)}
        except ValidationError as error:
            self.check_attempts(state.messages, first_problem(error))
            return None

    def check_attempts(self, messages: Sequence[Message], reason: str = "") -> None:
        """Raise `OutputInvalid` if the model has used up its attempts of this turn."""
        tried = attempts_of_turn(messages)
        if tried >= self.attempts:
            raise OutputInvalid(attempts=tried, reason=reason or messages[-1].content[:300])

    @staticmethod
    def reminder(messages: Sequence[Message]) -> list[Message]:
        """Return what the model is told, and what is not stored, after it answered with text."""
        if not messages or messages[-1].role != "assistant":
            return []
        return [Message.user(f"Give this answer by calling `{ANSWER}`, in its form.")]


def attempts_of_turn(messages: Sequence[Message]) -> int:
    """Return how often the model has answered since the user's last message, well or not."""
    count = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        if message.role == "assistant":
            names = [call.name for call in message.tool_calls]
            count += not names or ANSWER in names
    return count
