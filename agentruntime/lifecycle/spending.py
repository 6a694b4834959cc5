"""What model calls take: reserved before the call, settled after it, in the row of their run.

A reservation is an estimate that is rather too high. Until the call has ended, and for ever if its
worker dies, it counts as spent: nobody knows what such a call has cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import TracebackType
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError
from django.db.models import F

from agentruntime import llm
from agentruntime.conf import runtime_settings
from agentruntime.exceptions import BudgetExceeded, PriceUnknown
from agentruntime.graph.messages import Message
from agentruntime.graph.trimming import estimate_tokens
from agentruntime.lifecycle.budget import Budget, budget_of
from agentruntime.lifecycle.progress import Progress
from agentruntime.llm.tokens import estimate
from agentruntime.models import Run
from agentruntime.models.transactions import durably, give_back_connection
from agentruntime.signals import noticed

DIGITS = Decimal("1e-9")
# No call takes more: who says so is wrong, and is believed as little as who says nothing.
MOST_TOKENS = 10**9
MOST_DOLLARS = Decimal(10**6)
# What the columns of a run hold.
FULL_TOKENS = 2**53
FULL_DOLLARS = Decimal(10**9 - 1)


@dataclass(frozen=True)
class Spent:
    """What a model call takes, or is expected to take."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)


NOTHING = Spent()


class ModelCall:
    """One call of a model: `with` reserves for it, `answered` tells what came, the end settles it.

    `model` is `provider:name`, or empty for a function. A call that raises an error has spent
    nothing that is known; one that is given up keeps its reservation. Use `async with` on an event
    loop. Raises `BudgetExceeded`, `PriceUnknown` and `LeaseLost` before the call.
    """

    def __init__(
        self, progress: Progress, model: str, messages: Sequence[Message], tools: Sequence[Any]
    ) -> None:
        self._progress, self._model = progress, model
        self._messages, self._tools = messages, tools
        self._budget = budget_of(progress.run.config)
        self._reserved = NOTHING
        self._answer: Any = None

    def answered(self, answer: Any) -> Any:
        """Take note of the answer, and return it."""
        self._answer = answer
        return answer

    def __enter__(self) -> ModelCall:
        if self._budget.is_set:
            self._reserve()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return
        answer = self._answer if isinstance(self._answer, Message) else None
        told = answer is not None and isinstance(answer.extra.get("usage"), dict)
        if self._budget.is_set or self._model or told:
            _settle(self._progress, self._reserved, self._spent(answer), not self._budget.is_set)

    async def __aenter__(self) -> ModelCall:
        await sync_to_async(self.__enter__)()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            await sync_to_async(self.__exit__)(kind, error, trace)

    def _reserve(self) -> None:
        wanted = self._expected()
        seconds = self._progress.meter.take()

        def work() -> None:
            run = Run.held(self._progress.lease)
            run.working_seconds += seconds
            _check(self._budget, run, wanted)
            run.save_fields(
                model_calls=run.model_calls + 1,
                working_seconds=run.working_seconds,
                **_sums(run, wanted),
            )

        durably(work)
        give_back_connection()
        self._reserved = wanted

    def _expected(self) -> Spent:
        tokens = estimate(self._messages, self._tools)
        return self._priced(tokens, runtime_settings().RESERVED_OUTPUT_TOKENS)

    def _priced(self, input_tokens: int, output_tokens: int) -> Spent:
        cost = Decimal(0)
        if self._model:
            found = llm.price(self._model, input_tokens=input_tokens, output_tokens=output_tokens)
            if found is None and self._budget.cost is not None:
                raise PriceUnknown(model=self._model)
            cost = found or Decimal(0)
        return Spent(input_tokens, output_tokens, cost)

    def _spent(self, answer: Message | None) -> Spent:
        """What the answer took; an estimate where nobody told, or told what cannot be."""
        if answer is None:
            return Spent()
        usage = answer.extra.get("usage")
        usage = usage if isinstance(usage, dict) else {"unmeasured": True}
        asked, said = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
        if usage.get("unmeasured") or not (_is_possible(asked) and _is_possible(said)):
            return self._priced(estimate(self._messages, self._tools), estimate_tokens(answer))
        cost = llm.cost(answer)
        if cost is None or not cost.is_finite() or not 0 <= cost <= MOST_DOLLARS:
            return self._priced(asked, said)
        return Spent(asked, said, cost)


def _check(budget: Budget, run: Run, wanted: Spent) -> None:
    """Raise `BudgetExceeded`, naming the limit, if the call might go beyond one."""
    check_seconds(budget, run.working_seconds)
    asked = (
        ("model_calls", budget.model_calls, run.model_calls, 1),
        (
            "tokens",
            budget.tokens,
            run.input_tokens + run.output_tokens,
            wanted.input_tokens + wanted.output_tokens,
        ),
        ("cost", budget.cost, run.cost, wanted.cost),
    )
    for name, limit, spent, more in asked:
        if limit is not None and spent + more > limit:
            raise BudgetExceeded(what=name, limit=limit, spent=spent, wanted=more)


def check_seconds(budget: Budget, worked: float) -> None:
    """Raise `BudgetExceeded` if the run has worked for as long as it may."""
    if budget.seconds is not None and worked >= budget.seconds:
        raise BudgetExceeded(
            what="seconds", limit=budget.seconds, spent=round(worked, 3), wanted="more"
        )


def check_time(progress: Progress) -> None:
    """Raise `BudgetExceeded` if no step may begin any more."""
    budget = budget_of(progress.run.config)
    if budget.seconds is not None:
        account_time(progress)
        check_seconds(budget, progress.run.working_seconds)


def account_time(progress: Progress) -> None:
    """Write down for how long this worker has had the run, where its budget bounds that."""
    if budget_of(progress.run.config).seconds is None:
        return
    seconds = progress.meter.take()
    progress.run.working_seconds += seconds
    try:
        Run.objects.filter(pk=progress.run.pk).update(
            working_seconds=F("working_seconds") + seconds
        )
    except (DatabaseError, InterfaceError) as error:
        _tell("working time was not counted", progress, error)


def _settle(progress: Progress, reserved: Spent, spent: Spent, counts: bool) -> None:
    """Put what a call took in the place of what was reserved for it. Never raises."""

    def work() -> None:
        run = Run.objects.select_for_update().filter(pk=progress.run.pk).first()
        if run is None:
            return
        sums = _sums(run, spent, less=reserved)
        run.save_fields(**sums, **({"model_calls": run.model_calls + 1} if counts else {}))

    try:
        durably(work)
    except Exception as error:
        _tell("what a model call took was not counted", progress, error)
    give_back_connection()


def _is_possible(tokens: Any) -> bool:
    return isinstance(tokens, int) and 0 <= tokens <= MOST_TOKENS


def _sums(run: Run, more: Spent, less: Spent = NOTHING) -> dict[str, Any]:
    asked = run.input_tokens + more.input_tokens - less.input_tokens
    said = run.output_tokens + more.output_tokens - less.output_tokens
    cost = run.cost + more.cost - less.cost
    return {
        "input_tokens": min(max(asked, 0), FULL_TOKENS),
        "output_tokens": min(max(said, 0), FULL_TOKENS),
        "cost": min(max(cost, Decimal(0)), FULL_DOLLARS).quantize(DIGITS),
    }


def _tell(event: str, progress: Progress, error: Exception) -> None:
    facts = {"run": progress.run.pk, "error": f"{type(error).__name__}: {error}"}
    noticed.send(sender=None, level="error", event=event, facts=facts)
