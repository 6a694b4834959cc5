"""One node call or tool call at work: its context, its questions, its memos."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentruntime import executors
from agentruntime.event_loops import on_event_loop
from agentruntime.exceptions import Interrupted
from agentruntime.graph.messages import Message
from agentruntime.lifecycle import memo
from agentruntime.lifecycle.callbacks import callback_url
from agentruntime.lifecycle.model_call import ask_model
from agentruntime.lifecycle.news import small_news
from agentruntime.lifecycle.progress import Progress
from agentruntime.lifecycle.questions import Answers
from agentruntime.lifecycle.results import Later, Waiting
from agentruntime.lifecycle.spending import ModelCall
from agentruntime.signals import progressed

logger = logging.getLogger(__name__)


class Execution:
    """What user code gets as `ctx`, and what `interrupt()` and `once()` speak to."""

    def __init__(
        self,
        progress: Progress,
        node: str,
        answers: Answers,
        *,
        idempotency_key: str = "",
        attempt: int = 1,
        deadline: float | None = None,
    ) -> None:
        run = progress.run
        self.run_id, self.thread_id = str(run.pk), str(run.thread_id)
        self.user_id, self.tenant = run.user_id, progress.thread.tenant
        self.graph, self.node = run.graph, node
        self.config: Mapping[str, Any] = run.config
        self.idempotency_key = idempotency_key or answers.scope
        self.attempt, self.deadline = attempt, deadline
        self._progress, self._answers = progress, answers
        self._unknown_memos: list[memo.Memo] = []
        self._memos_at_work = 0
        self.inner: Waiting | Later | None = None
        """What the agent waits for that this call asks."""

    @property
    def may_be_cut(self) -> bool:
        """Whether nothing is under way that must not be begun twice."""
        return self._memos_at_work == 0

    @property
    def waits(self) -> bool:
        """Whether a question was asked that has no answer, even if the code went on regardless."""
        return bool(self._answers.asked or self._unknown_memos or self.inner)

    def questions(self) -> list[Any]:
        """The questions to put before people."""
        inner = self.inner.questions if isinstance(self.inner, Waiting) else ()
        return [*self._answers.asked, *(one.question() for one in self._unknown_memos), *inner]

    def begin_again(self) -> None:
        """Forget what was asked: the body starts from its first line."""
        self._answers.begin_again()
        self._unknown_memos = []

    def answer(self, payload: Any, message: str, response_schema: Any) -> Any:
        row = self._answers.look_up(payload, message, response_schema)
        if row is None:
            raise Interrupted
        return row.answer

    def once(self, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(fn):
            return self._once_async(name, fn, args, kwargs)
        one = self._begin(name)
        if not one.is_recorded:
            self._memos_at_work += 1
            try:
                value = fn(*args, **kwargs)
            except Interrupted:  # it waits for a person: it was not done, and is not in doubt
                self._beside(one.take_back)
                self._memos_at_work -= 1
                raise
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                self._beside(lambda error=error: one.fail(error))  # type: ignore[misc]
                self._memos_at_work -= 1
                raise
            self._beside(lambda: one.record(value))
            self._memos_at_work -= 1
        return one.result()

    async def _once_async(self, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        one = self._begin(name)
        if not one.is_recorded:
            self._memos_at_work += 1
            try:
                value = await fn(*args, **kwargs)
            except Interrupted:  # it waits for a person: it was not done, and is not in doubt
                self._beside(one.take_back)
                self._memos_at_work -= 1
                raise
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                self._beside(lambda error=error: one.fail(error))  # type: ignore[misc]
                self._memos_at_work -= 1
                raise
            self._beside(lambda: one.record(value))
            self._memos_at_work -= 1
        return one.result()

    def _begin(self, name: str) -> memo.Memo:
        one: memo.Memo = self._beside(
            lambda: memo.begin(self._progress, self.node, self._answers.scope, name)
        )
        if one.is_unknown:
            self._unknown_memos.append(one)
            raise Interrupted
        return one

    @staticmethod
    def _beside(work: Callable[[], Any]) -> Any:
        return executors.run_beside(work) if on_event_loop() else work()

    def emit(self, data: Any) -> None:
        self._tell("tool.progress", {"node": self.node, **self._call, "data": small_news(data)})

    @property
    def _call(self) -> dict[str, Any]:
        is_call = self._answers.tool_execution_id is not None
        return {"call_key": self.idempotency_key} if is_call else {}

    def callback_url(self) -> str:
        if self._answers.tool_execution_id is None:
            raise RuntimeError("callback_url() works only inside a tool of a run.")
        return callback_url(self._answers.tool_execution_id)

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        run = self._progress.run
        for receiver, failure in progressed.send_robust(
            sender=None, thread_id=run.thread_id, run_id=run.pk, type=kind, data=data
        ):
            if failure is not None:
                logger.debug("%r did not take live news: %r", receiver, failure)

    async def complete(
        self,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Any],
        *,
        is_told: bool = True,
    ) -> Message:
        def tell(text: str, **more: Any) -> None:
            if is_told:
                self._tell("message.delta", {"node": self.node, "text": text, **more})

        async with ModelCall(self._progress, model, messages, tools) as call:
            answer = await ask_model(
                model,
                messages,
                tools,
                on_delta=tell,
                on_retry=lambda: tell("", restarts=True),
                deadline=self.deadline,
            )
            call.answered(answer)
        return answer

    def model_call(self, messages: Sequence[Message], tools: Sequence[Any]) -> ModelCall:
        return ModelCall(self._progress, "", messages, tools)
