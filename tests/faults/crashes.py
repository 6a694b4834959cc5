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
import shutil
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.children import expire, stop, work

EFFECTS = ("repeatable", "reconciled", "once", "transactional", "gated", "asking")
STEP = ("P3", "P4", "P5", "P6", "P7", "P10", "P11", "P12", "P13", "P14", "P15")
POINTS: dict[str, tuple[str, ...]] = {
    "repeatable": ("P0", "P1", "P2", *STEP, "P8", "P9"),
    "reconciled": (*STEP, "P8", "P9"),
    "once": (*STEP, "P8", "P9"),
    "transactional": (*STEP, "P8", "P9"),
    "gated": (*STEP, "P8", "P9", "A1", "A2", "A3", "A4", "A5"),
    "asking": (*STEP, "P8", "P9", "A1", "A3", "A4"),
}
SPECIAL = ("R1", "T1", "S1")


def set_up(create: bool, mails: Path) -> None:
    """Load Django as a process without a broker, and without a pool, which no fork survives.

    Mails are written into the folder `mails`.
    """
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
    settings.APPROVALS = {**settings.APPROVALS, "MAIL": True}
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(mails)
    django.setup()
    from agentruntime.signals import swept

    swept.disconnect(dispatch_uid="approvals.swept")  # notices are sent where a trial says
    if create:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
    from tests.faults.customers import register_customers

    register_customers()


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

    def __init__(self, bank: object, mails: Path, seed: int) -> None:
        self.bank, self.mails, self.random = bank, mails, random.Random(seed)
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
        self._judge_notices(run)
        if (job is work and times != [1, 1]) or (job is expire and any(times)):
            raise Failure(f"run {run.pk} of {effect} has moved {times}")

    def _judge_notices(self, run: object) -> None:
        """Each notice is sent, and once more under the same id where its sender died."""
        from approvals.models import Notice

        notices = Notice.objects.filter(approval__run_id=run.pk).values_list("pk", "status")
        sent = [file.read_text() for file in self.mails.iterdir()]
        for pk, status in notices:
            times = sum(f"Message-ID: <{pk}@" in one for one in sent)
            if status != "sent" or not 1 <= times <= 2:
                raise Failure(f"notice {pk} is {status}, sent {times} times")
        for file in self.mails.iterdir():
            file.unlink()

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
    place = Path(tempfile.mkdtemp(prefix="crashes-"))
    mails = place / "mails"
    mails.mkdir()
    set_up(options.create, mails)
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    from tests.faults.bank import open_bank

    get_user_model().objects.filter(username="crash-boss").delete()
    boss = get_user_model().objects.create_user("crash-boss", "boss@example.com")
    boss.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    with open_bank(place / "bank.jsonl") as bank:
        trials = Trials(bank, mails, seed)
        named = trials.every_point()[seed % options.every :: options.every] if options.every else []
        failed = [one for one in named if not attempt(trials, *one)]
        missed = [f"{e} {p[-1]}" for e, p in named if not trials.hit[e, p[-1].partition(":")[0]]]
        while trials.kills < options.kills and len(failed) < 10:
            one = trials.random_trial()
            if not attempt(trials, *one):
                failed.append(one)
    shutil.rmtree(place)
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
