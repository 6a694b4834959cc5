"""Real SIGKILLs at named points: `python -m tests.faults.crashes --kills N [--seed S]`.

A trial is one run and one to three processes that work on it; all but the last are told to die at a
point (`agentruntime.crash`), and the last one works off what is left. Then the history must be
sound (`agentruntime.invariants`), the bank must have moved each sum once, and the run must have
come to the end that it would have had. The parent forks and never works itself, so that no thread
is lost in a fork.

It works on the database of DATABASE_URL, which must have its tables and may be a private one:
`python -m tests.services -- python -m tests.faults.crashes --create --kills 500`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

EFFECTS = ("repeatable", "reconciled", "once", "transactional", "gated", "asking")
STEP = ("P3", "P4", "P5", "P6", "P7", "P10", "P11", "P12", "P13", "P14", "P15")
POINTS: dict[str, tuple[str, ...]] = {
    "repeatable": ("P0", "P1", "P2", *STEP, "P8", "P9"),
    "reconciled": (*STEP, "P8", "P9"),
    "once": (*STEP, "P8", "P9"),
    "transactional": (*STEP, "P8", "P9"),
    "gated": (*STEP, "P8", "P9", "A1", "A3", "A4", "A5"),
    "asking": (*STEP, "P8", "P9", "A1", "A3", "A4"),
}
SPECIAL = ("R1", "T1", "S1")
ROUNDS = 60


def set_up(create: bool) -> None:
    """Load Django as a process without a broker, and without a pool, which no fork survives."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.pop("REDIS_URL", None)
    import django
    from django.conf import settings

    options = settings.DATABASES["default"]["OPTIONS"]
    options.pop("pool", None)
    if "init_command" in options:  # a killed process needs no disk; a killed machine is not tried
        options["init_command"] = options["init_command"].replace("FULL", "OFF")
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}
    settings.LOGGING["root"]["level"] = "CRITICAL"
    django.setup()
    if create:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
    from tests.faults.customers import register_customers

    register_customers()


# --- in the children --------------------------------------------------------------------------


def work(effect: str, key: str) -> None:
    """Start the run of this key, if nobody has, and work on it until it has ended."""
    from agentruntime.lifecycle import start_run

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    for _ in range(ROUNDS):
        run.refresh_from_db()
        if run.has_ended:
            return
        deliver(run.pk)
        answer_all(run)
    raise AssertionError(f"run {run.pk} is still {run.status} after {ROUNDS} rounds")


def deliver(run_id: uuid.UUID) -> None:
    """What a worker does with a message: the actor, the ack."""
    from agentruntime.actors import broker, execute_run
    from agentruntime.lifecycle.recover import sweep

    for found in {run_id, *sweep()}:
        execute_run(str(found))
    broker.emit_after("ack", None)


def answer_all(run: object) -> None:
    """Answer whatever the run asks, with what the bank's books say."""
    from agentruntime.lifecycle import resume_run
    from agentruntime.models import Interrupt

    for asked in Interrupt.objects.filter(run=run, status="open"):
        if asked.kind == "approval":
            decide_it(asked)
        elif asked.kind == "outcome":
            resume_run(interrupt_id=asked.pk, value=what_happened(asked))
        else:
            resume_run(interrupt_id=asked.pk, value="yes")


def decide_it(asked: object) -> None:
    from django.contrib.auth import get_user_model

    from approvals.decide import decide

    boss = get_user_model().objects.get(username="crash-boss")
    decide(approval_id=asked.approval.pk, verdict="approve", user=boss)


def what_happened(asked: object) -> dict[str, str]:
    from tests.faults.bank import was_carried_out

    known = was_carried_out(asked.payload["idempotency_key"])
    if known:
        return {"outcome": "succeeded", "result": known["receipt"]}
    return {"outcome": "retry"}


def expire(effect: str, key: str) -> None:
    """Let the questions of the run expire, and sweep."""
    from agentruntime.lifecycle import start_run
    from agentruntime.lifecycle.recover import sweep
    from agentruntime.models import DatabaseTime, Interrupt

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    for _ in range(ROUNDS):
        run.refresh_from_db()
        if run.has_ended:
            return
        deliver(run.pk)
        Interrupt.objects.filter(run=run, status="open").update(expires_at=DatabaseTime(-1))
        sweep()


def stop(effect: str, key: str) -> None:
    """Ask the run to stop while it is claimed; it hears that and ends."""
    from agentruntime.lifecycle import start_run, stop_run
    from agentruntime.lifecycle.claim import claim_run
    from agentruntime.lifecycle.loop import _hold

    run = start_run(graph=effect, input="please pay", idempotency_key=key)
    run.refresh_from_db()
    claim = None if run.has_ended else claim_run(run.pk)
    if claim is not None:
        stop_run(run_id=run.pk)
        claim.run.refresh_from_db()
        _hold(claim)


# --- in the parent ----------------------------------------------------------------------------


class Failure(Exception):
    """What a trial found."""


def in_a_child(plan: str, job: Callable[[], None]) -> bool:
    """Run `job` in a fork that dies by `plan`; say whether it died. Another end is a failure."""
    from django.db import connections

    from agentruntime import crash

    connections.close_all()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            crash.arm(plan)
            job()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status != 0:
        raise Failure(f"a child ended with {status:#x} (plan {plan!r})")
    return False


class Trials:
    """The trials of one invocation, with what they hit."""

    def __init__(self, bank: object, seed: int) -> None:
        self.bank, self.random = bank, random.Random(seed)
        self.hit: Counter[tuple[str, str]] = Counter()
        self.kills = self.trials = 0

    def run(self, effect: str, plans: list[str]) -> None:
        """Do one trial. Raises `Failure`."""
        self.trials += 1
        key = uuid.uuid4().hex
        job = {"T1": expire, "S1": stop}.get(plans[0].partition(":")[0], work)
        for plan in plans:
            if in_a_child(plan, lambda: job(effect, key)):
                self.kills += 1
                self.hit[effect, plan.partition(":")[0]] += 1
            self._lapse()
        in_a_child("", lambda: job(effect, key))
        self._judge(effect, key, job)

    @staticmethod
    def _lapse() -> None:
        from agentruntime.models import DatabaseTime, Run

        Run.objects.filter(status="running").update(lease_expires_at=DatabaseTime(-1))

    def _judge(self, effect: str, key: str, job: Callable[[str, str], None]) -> None:
        from django.contrib.auth.models import Group

        from agentruntime.invariants import Scope, find_violations
        from agentruntime.invariants.bank import compare_with_bank
        from agentruntime.models import Run, ToolExecution

        run = Run.objects.get(idempotency_key=key)
        wanted = {work: "completed", expire: "completed", stop: "stopped"}[job]
        if run.status != wanted:
            raise Failure(f"run {run.pk} is {run.status}: {run.error_code} {run.error_detail}")
        scope = Scope(thread=run.thread_id)
        found = [*find_violations(scope), *compare_with_bank(self.bank.file, scope)]
        if found:
            raise Failure("\n".join(map(str, found)))
        keys = ToolExecution.objects.filter(run=run, tool="pay").values_list("call_key", flat=True)
        books = self.bank.applied()
        times = [
            Group.objects.filter(name=one[-140:]).count()
            if effect == "transactional"
            else books[one]
            for one in keys
        ]
        if (job is work and times != [1, 1]) or (job is expire and any(times)):
            raise Failure(f"run {run.pk} of {effect} has moved {times}")

    def random_trial(self) -> tuple[str, list[str]]:
        """An effect, and one or two points at their first or second hit."""
        effect = self.random.choice(EFFECTS)
        points = POINTS[effect]
        plans = [
            f"{self.random.choice(points)}:{self.random.choice((1, 1, 2))}"
            for _ in range(self.random.choice((1, 1, 2)))
        ]
        if self.random.random() < 0.15:
            plans = [plans[0], "R1"]
        if self.random.random() < 0.08:
            return ("gated", ["T1"]) if self.random.random() < 0.5 else (effect, ["S1"])
        return effect, plans

    def every_point(self) -> list[tuple[str, list[str]]]:
        """Each point of each effect once, at its first hit, and the special ones."""
        named = [(effect, [f"{point}:1"]) for effect in EFFECTS for point in POINTS[effect]]
        special = [
            ("repeatable", ["P3:1", "R1:1"]),
            ("once", ["P8:1", "A3:1"]),
            ("once", ["P9:1", "A4:1"]),
            ("gated", ["T1:1"]),
            ("repeatable", ["S1:1"]),
        ]
        return named + special


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.crashes", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="how many at random points")
    parser.add_argument(
        "--every", type=int, default=1, help="of the named points, each Nth (0: none)"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--create", action="store_true", help="make the tables first")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    set_up(options.create)
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    from tests.faults.bank import open_bank

    get_user_model().objects.filter(username="crash-boss").delete()
    boss = get_user_model().objects.create_user("crash-boss")
    boss.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place, open_bank(Path(place) / "bank.jsonl") as bank:
        trials = Trials(bank, seed)
        named = trials.every_point()[seed % options.every :: options.every] if options.every else []
        failed = [one for one in named if not attempt(trials, *one)]
        missed = [f"{e} {p[-1]}" for e, p in named if not trials.hit[e, p[-1].partition(":")[0]]]
        while trials.kills < options.kills and len(failed) < 10:
            one = trials.random_trial()
            if not attempt(trials, *one):
                failed.append(one)
    seconds = time.monotonic() - begun
    if missed:
        print(f"points that were never reached: {', '.join(missed)}")
    print(
        f"{trials.kills} kills in {trials.trials} trials, {len(failed)} violations, "
        f"{len(missed)} points missed, {seconds:.0f} s"
    )
    return 1 if failed or missed else 0


def attempt(trials: Trials, effect: str, plans: list[str]) -> bool:
    """Do one trial and print what it found."""
    try:
        trials.run(effect, plans)
    except Failure as failure:
        print(f"{effect} {plans}: {failure}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
