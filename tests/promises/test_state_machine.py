"""Random schedules against the database: workers that begin, die, sleep and wake, people that
answer late or twice, stops, redelivered messages. After each, the history must be sound, and what
the tools did must be what the ledger says.

`SCHEDULES=10000` in the environment runs that many; the seed is printed by Hypothesis.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from agentruntime import crash
from agentruntime.exceptions import AlreadyAnswered, IllegalTransition
from agentruntime.graph import Message, ToolCall, create_agent, interrupt, register, tool
from agentruntime.graph.registry import unregister
from agentruntime.invariants import Scope, find_violations
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
from agentruntime.models import DatabaseTime, Interrupt, Run, ToolExecution

SCHEDULES = int(os.environ.get("SCHEDULES", "10"))
POINTS = ("P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "R1", "S1")
done: Counter[str] = Counter()


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

    def _work(self) -> None:
        try:
            execute(self.run.pk)
        except crash.SimulatedCrash:
            pass
        finally:
            crash.arm("")

    @rule()
    def work(self) -> None:
        self._work()

    @rule(point=st.sampled_from(POINTS), hit=st.sampled_from((1, 1, 2)))
    def work_and_die(self, point: str, hit: int) -> None:
        crash.arm(f"{point}:{hit}:raise")
        self._work()

    @rule()
    def let_leases_lapse(self) -> None:
        Run.objects.filter(status="running").update(lease_expires_at=DatabaseTime(-1))

    @rule()
    def deliver_three_times(self) -> None:
        recover_runs()
        for _ in range(3):
            self._work()

    @rule(which=st.integers(0, 3), times=st.sampled_from((1, 2)))
    def answer(self, which: int, times: int) -> None:
        asked = list(Interrupt.objects.filter(run=self.run).order_by("created_at"))
        if not asked:
            return
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
        with suppress(IllegalTransition):
            stop_run(run_id=self.run.pk)

    @rule()
    def retry(self) -> None:
        with suppress(IllegalTransition):
            retry_run(run_id=self.run.pk)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        crash.arm("")
        self._come_to_an_end()
        found = list(find_violations(Scope(thread=self.run.thread_id)))
        assert found == [], found
        for row in ToolExecution.objects.filter(run=self.run, kind="call"):
            assert done[row.call_key] <= 1, row
            if row.status == "succeeded" and row.result != "not done":
                assert done[row.call_key] == 1, row

    def _come_to_an_end(self) -> None:
        for _ in range(12):
            self.let_leases_lapse()
            self._work()
            for one in Interrupt.objects.filter(run=self.run, status="open"):
                resume_run(interrupt_id=one.pk, value=self._answer_to(one))
            self.run.refresh_from_db()
            if self.run.has_ended:
                return
        raise AssertionError(f"the run is still {self.run.status}")


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
def test_every_schedule_ends_sound(agents):
    run_state_machine_as_test(
        Schedule,
        settings=settings(
            max_examples=SCHEDULES,
            stateful_step_count=12,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
