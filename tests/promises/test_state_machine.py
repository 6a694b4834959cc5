"""Random schedules against the database: workers that begin, die, sleep and wake, people that
answer late or twice, stops, redelivered messages. After each, the history must be sound, and what
the tools did must be what the ledger says.

`make schedules N=10000` runs that many and prints what they did.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from agentruntime import crash
from agentruntime.exceptions import AlreadyAnswered, IllegalTransition
from agentruntime.graph import Message, ToolCall, create_agent, interrupt, register, tool
from agentruntime.graph.registry import unregister
from agentruntime.invariants import find_violations
from agentruntime.lifecycle import (
    recover_runs,
    resume_run,
    retry_run,
    start_run,
    stop_run,
    tool_calls,
)
from agentruntime.lifecycle.lease import Keeper
from agentruntime.lifecycle.loop import execute
from agentruntime.models import DatabaseTime, Interrupt, Run, Thread, ToolExecution

SCHEDULES = int(os.environ.get("SCHEDULES", "10"))
# In the suite each schedule is looked at by itself, so that a wrong one is made as short as can be.
LOOK_EVERY = 25 if SCHEDULES > 100 else 1
POINTS = ("P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "R1", "S1")
done: Counter[str] = Counter()
told: Counter[str] = Counter()
so_far: dict[str, list[str]] = {}
"""What was done to each thread that is still to be looked at, as text."""


def act(key: str) -> str:
    crash.crash_point("P8")
    done[key] += 1
    crash.crash_point("P9")
    return "done"


@tool
def keyed(idempotency_key: str) -> str:
    """An effect behind a provider that knows keys."""
    if done[idempotency_key]:
        return "done"
    return act(idempotency_key)


@tool(effect="once")
def plain(idempotency_key: str) -> str:
    """An effect that must not be repeated."""
    return act(idempotency_key)


@tool
def asking(idempotency_key: str) -> str:
    """An effect after a question."""
    return keyed.fn(idempotency_key) if interrupt("sure?") == "yes" else "not done"


def model(messages, tools):
    since = max(n for n, one in enumerate(messages) if one.role == "user")
    if any(one.role == "tool" for one in messages[since:]):
        return Message.assistant("all done")
    names = ("keyed", "plain", "asking")
    return Message.assistant(
        "",
        tool_calls=[
            ToolCall(id=f"call_{n}", name=name, arguments={}) for n, name in enumerate(names)
        ],
    )


class Schedule(RuleBasedStateMachine):
    """One run on one thread, and everything that may happen to it, in any order."""

    @initialize()
    def begin(self) -> None:
        crash.arm("")
        done.clear()
        self.run = start_run(graph="schedule", input="go")
        self.steps = so_far.setdefault(str(self.run.thread_id), [])

    def _note(self, *words: object) -> None:
        """Keep what is done, for the report and for a history that turns out to be wrong."""
        told[str(words[0])] += 1
        self.steps.append(" ".join(map(str, words)))

    def _work(self) -> None:
        try:
            execute(self.run.pk)
        except crash.SimulatedCrash as death:
            told[f"died at {death}"] += 1
        finally:
            crash.arm("")

    @rule()
    def work(self) -> None:
        self._note("work")
        self._work()

    @rule(point=st.sampled_from(POINTS), hit=st.sampled_from((1, 1, 2)))
    def work_and_die(self, point: str, hit: int) -> None:
        self._note("work and die", point, hit)
        crash.arm(f"{point}:{hit}:raise")
        self._work()

    @rule()
    def let_leases_lapse(self) -> None:
        self._note("leases lapse")
        self._lapse()

    def _lapse(self) -> None:
        Run.objects.filter(status="running").update(lease_expires_at=DatabaseTime(-1))

    @rule()
    def deliver_three_times(self) -> None:
        self._note("deliver three times")
        recover_runs()
        for _ in range(3):
            self._work()

    @rule(which=st.integers(0, 3), times=st.sampled_from((1, 2)))
    def answer(self, which: int, times: int) -> None:
        asked = list(Interrupt.objects.filter(run=self.run).order_by("created_at"))
        if not asked:
            return
        self._note("answer", which, times)
        one = asked[which % len(asked)]
        for _ in range(times):
            with suppress(AlreadyAnswered):
                resume_run(interrupt_id=one.pk, value=self._answer_to(one))

    @staticmethod
    def _answer_to(one: Interrupt) -> object:
        if one.kind != "outcome":
            return "yes"
        if done[one.payload["idempotency_key"]]:
            return {"outcome": "succeeded", "result": "it was done"}
        return {"outcome": "retry"}

    @rule()
    def stop(self) -> None:
        if self.run.pk.int % 3:  # most schedules go to the end
            return
        self._note("stop")
        with suppress(IllegalTransition):
            stop_run(run_id=self.run.pk)

    @rule()
    def retry(self) -> None:
        self._note("retry")
        with suppress(IllegalTransition):
            retry_run(run_id=self.run.pk)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        crash.arm("")
        self._come_to_an_end()
        told[f"ended {self.run.status}"] += 1
        told["schedules"] += 1
        if told["schedules"] % LOOK_EVERY == 0:
            look_at_history()
        for row in ToolExecution.objects.filter(run=self.run, kind="call"):
            assert done[row.call_key] <= 1, row
            if row.status == "succeeded" and row.result != "not done":
                assert done[row.call_key] == 1, row

    def _come_to_an_end(self) -> None:
        for _ in range(12):
            self._lapse()
            self._work()
            for one in Interrupt.objects.filter(run=self.run, status="open"):
                resume_run(interrupt_id=one.pk, value=self._answer_to(one))
            self.run.refresh_from_db()
            if self.run.has_ended:
                return
        raise AssertionError(f"the run is still {self.run.status}")


def look_at_history() -> None:
    """Ask every invariant of what was done since the last look, and forget it."""
    found = list(find_violations())
    steps = "\n".join(f"{one.thread}: {', '.join(so_far.get(one.thread, []))}" for one in found)
    so_far.clear()
    Thread.objects.all().delete()
    assert found == [], f"{found}\n{steps}"


@pytest.fixture
def agents(monkeypatch):
    # What died lives on in this process: a beat under way must not bring its lease back.
    monkeypatch.setattr(Keeper, "prolong", lambda *_: None)
    read_outcome = tool_calls.read_outcome

    def dying(turn, acting, work):
        # In a tool's thread a simulated death is an exception; it must not be taken for an outcome.
        if isinstance(work.error, crash.SimulatedCrash):
            raise work.error
        return read_outcome(turn, acting, work)

    monkeypatch.setattr(tool_calls, "read_outcome", dying)
    unregister("schedule")
    register("schedule", create_agent(model=model, tools=[keyed, plain, asking]))
    yield
    unregister("schedule")


@pytest.mark.slow
def test_every_schedule_ends_sound(agents, caplog):
    told.clear()
    so_far.clear()
    if LOOK_EVERY > 1:
        caplog.set_level(logging.ERROR, "agentruntime")
    begun = time.monotonic()
    run_state_machine_as_test(
        Schedule,
        settings=settings(
            max_examples=SCHEDULES,
            stateful_step_count=12,
            deadline=None,
            print_blob=True,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    look_at_history()
    print(f"{told.pop('schedules')} schedules, 0 violations, {time.monotonic() - begun:.0f} s")
    print("; ".join(f"{name} {times}" for name, times in sorted(told.items())))
