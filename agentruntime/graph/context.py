"""What the runtime gives to user code (`Context`), and what `interrupt()` and `once()` ask of
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from agentruntime.graph.messages import Message


class Context(Protocol):
    """The parameter `ctx` of a node or tool: who it works for, and what it may tell meanwhile.

    `user_id` is the person that the run acts for (never its approver), `deadline` the moment, in
    seconds of `time.monotonic()`, at which the work is given up, or None.
    """

    run_id: str
    thread_id: str
    user_id: Any
    tenant: str
    graph: str
    node: str
    config: Mapping[str, Any]
    idempotency_key: str
    attempt: int
    deadline: float | None

    def emit(self, data: Any) -> None:
        """Tell watchers something now. Not stored, never the truth, lost if nobody watches.

        `data` is JSON-like and small: 16,384 characters. From any thread; it never raises.
        """

    def callback_url(self) -> str:
        """Return the address at which this call's result may be handed in, once. In tools only.

        `POST` it `{"result": ...}` or `{"error": "..."}`; whoever has it may do so.
        """

    async def complete(
        self,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Any],
        *,
        is_told: bool = True,
    ) -> Message:
        """Ask the model named `provider:name` and return its answer as an assistant message.

        Watchers are told its text while it is written, unless `is_told` is false.
        """

    def model_call(self, messages: Sequence[Message], tools: Sequence[Any]) -> ModelCall:
        """Return a block around a call of a model that is a function: the budget counts it.

        `with ctx.model_call(messages, tools) as call: answer = call.answered(model(messages))`
        """


class ModelCall(Protocol):
    """A block (`with` or `async with`) that reserves for a model call and settles what it took."""

    def answered(self, answer: Any) -> Any:
        """Take note of the answer, and return it."""

    def __enter__(self) -> ModelCall: ...

    def __exit__(self, *failure: Any) -> None: ...

    async def __aenter__(self) -> ModelCall: ...

    async def __aexit__(self, *failure: Any) -> None: ...


class Execution(Protocol):
    """One node call or tool call at work: the place where questions and memos are kept."""

    def answer(self, payload: Any, message: str, response_schema: Any) -> Any:
        """Return the answer to this question, or raise `Interrupted` and have it asked."""

    def once(self, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the recorded result of `name`, or run `fn` and record it."""


current_execution: ContextVar[Execution | None] = ContextVar("current_execution", default=None)
