"""Asking until there is an answer: again where that can help, else the next model of the chain."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from agentruntime.exceptions import ModelError, ModelTimedOut
from agentruntime.graph.messages import Message
from agentruntime.llm.backoff import wait_before
from agentruntime.llm.options import ModelName, ModelOptions
from agentruntime.llm.port import OnDelta, OnRetry, Retry
from agentruntime.llm.prices import joined_usage
from agentruntime.llm.tokens import estimate

logger = logging.getLogger(__name__)


async def _engine() -> ModuleType:
    # The library takes half a second to load and is wanted by those only who ask a model.
    return await asyncio.to_thread(importlib.import_module, "agentruntime.llm.asking")


class ModelChain:
    """A `ModelClient` over one model or a chain of them."""

    def __init__(self, names: tuple[ModelName, ...], options: ModelOptions) -> None:
        self.names, self.options = names, options

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any],
        *,
        on_delta: OnDelta | None = None,
        on_retry: OnRetry | None = None,
        deadline: float | None = None,
    ) -> Message:
        """Return the answer of the first model of the chain that gives one. Raises `ModelError`.

        `deadline` is a moment of `time.monotonic()`; at it a request under way is cut off, and no
        wait goes beyond it.
        """
        asked = _Asked(self.options, on_delta, on_retry, deadline)
        for position, name in enumerate(self.names):
            following = self.names[position + 1] if position + 1 < len(self.names) else None
            try:
                return await asked.until_answered(name, messages, tools)
            except ModelError as error:
                if following is None or not error.elsewhere:
                    raise
                logger.warning("%s; asking %s instead.", error, following)
                await asked.tell(error, 0.0, following)
        raise AssertionError("a chain has at least one model")

    async def count(self, messages: Sequence[Message], tools: Sequence[Any]) -> int:
        """Return how many tokens the conversation takes for the first model of the chain."""
        engine = await _engine()
        request = await engine.prepare(self.names[0], self.options, messages, tools)
        counted: int | None = await engine.count_tokens(request)
        return estimate(messages, tools) if counted is None else counted


class _Asked:
    """One answer in the making: how many requests it took so far, and until when it may go on."""

    def __init__(
        self,
        options: ModelOptions,
        on_delta: OnDelta | None,
        on_retry: OnRetry | None,
        deadline: float | None,
    ) -> None:
        self.options, self.on_delta, self.on_retry = options, on_delta, on_retry
        self.deadline = deadline
        self.attempts = 0

    async def until_answered(
        self, name: ModelName, messages: Sequence[Message], tools: Sequence[Any]
    ) -> Message:
        engine = await _engine()
        request = await engine.prepare(name, self.options, messages, tools)
        empty: list[Message] = []
        for attempt in range(1, self.options.attempts + 1):
            last = attempt == self.options.attempts
            try:
                answer = await self._once(engine, request, name)
            except ModelError as error:
                wait = wait_before(attempt, error.retry_after, self.options)
                if last or not error.passing or wait is None or not self._in_time(wait):
                    raise
                await self.tell(error, wait, name)
                await asyncio.sleep(wait)
                continue
            if last or not _says_nothing(answer) or len(empty) + 1 >= self.options.empty_attempts:
                return _with_usage_of(empty, answer)
            empty.append(answer)
            await self.tell(None, 0.0, name)
        raise AssertionError("a model is asked at least once")

    async def _once(self, engine: ModuleType, request: Any, name: ModelName) -> Message:
        self.attempts += 1
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ModelTimedOut(model=str(name), attempts=self.attempts - 1)
        try:
            async with asyncio.timeout(left):
                answer: Message = await engine.ask(request, self.on_delta, self.attempts)
                return answer
        except TimeoutError:
            raise ModelTimedOut(model=str(name), attempts=self.attempts) from None

    def _in_time(self, wait: float) -> bool:
        return self.deadline is None or time.monotonic() + wait < self.deadline

    async def tell(self, error: ModelError | None, wait: float, name: ModelName) -> None:
        """Tell the listener that what it has heard is void, and that `name` is asked next."""
        if self.on_retry is None:
            return
        retry = Retry(self.attempts, error.code if error else "EMPTY", wait, str(name))
        try:
            told = self.on_retry(retry)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("A listener of retries failed.")


def _with_usage_of(discarded: Sequence[Message], answer: Message) -> Message:
    """Return the answer with what the empty ones before it took: they are paid for too."""
    usage = answer.extra["usage"]
    for one in discarded:
        usage = joined_usage(one.extra["usage"], usage)
    return answer.model_copy(update={"extra": {**answer.extra, "usage": usage}})


def _says_nothing(answer: Message) -> bool:
    # Asked again only where the model could have said more: not after a limit or a refusal.
    return bool(answer.extra.get("empty")) and answer.extra.get("finish") in ("stop", "")
