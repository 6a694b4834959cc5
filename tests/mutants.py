"""Whether the suite notices when a guard is taken away: `make mutants`.

Each mutant is one guard removed in a copy of the tree, and the tests that must turn red. Prints
`N of N caught`; exits non-zero for a mutant that lives, or one whose guard is not where the list
says (then the list is to be brought up to date). `--only TEXT` picks some by name.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache",
    "*.sqlite3*",
)  # fmt: skip
AT_ONCE = 2


@dataclass(frozen=True)
class Mutant:
    """A guard, where it stands, what stands there without it, and who must notice."""

    name: str
    file: str
    guard: str
    without: str
    tests: str
    db: str = "sqlite"


LIFECYCLE = "agentruntime/lifecycle/"
MUTANTS = [
    Mutant(
        "fencing token of a write",
        "agentruntime/models/run.py",
        "fencing_token=lease.fencing_token, status=RunStatus.RUNNING",
        "status=RunStatus.RUNNING",
        "tests/promises/test_zombies.py",
    ),
    Mutant(
        "a claim takes only what is claimable",
        LIFECYCLE + "claim.py",
        ".filter(pk=run_id).claimable()",
        ".filter(pk=run_id)",
        "tests/promises/test_zombies.py -k sweep_takes_up",
    ),
    Mutant(
        "claims are counted",
        LIFECYCLE + "claim.py",
        '"attempts": run.attempts + 1',
        '"attempts": run.attempts',
        "tests/promises/test_retries.py -k before_any_commit",
    ),
    Mutant(
        "call attempts are bounded",
        LIFECYCLE + "sorting.py",
        "if spent >= runtime_settings().MAX_CALL_ATTEMPTS and not told:",
        "if False:",
        "tests/promises/test_retries.py -k parked_and_may_be_tried",
    ),
    Mutant(
        "a once call is not repeated by itself",
        LIFECYCLE + "sorting.py",
        'return tool.effect == "repeatable" and doubt',
        "return doubt",
        "tests/lifecycle/test_tool_calls.py -k once_call_of_a_lost_worker",
    ),
    Mutant(
        "the provider is asked about each attempt",
        LIFECYCLE + "sorting.py",
        "turn.reconciled.pop(row.pk, None)",
        "pass",
        "tests/promises/test_retries.py -k provider_said",
    ),
    Mutant(
        "an unrecorded call has ended all the same",
        LIFECYCLE + "look.py",
        "        _keep_unrecorded(turn)\n",
        "",
        "tests/promises/test_recording.py -k not_started_again_for_a_sibling",
    ),
    Mutant(
        "nothing starts after a stop",
        LIFECYCLE + "look.py",
        "if run.stop_requested_at is not None:",
        "if False:",
        "tests/promises/test_stop.py -k nothing_starts",
    ),
    Mutant(
        "a kept question is never opened anew",
        LIFECYCLE + "pause.py",
        "if status is None and one.kept is None:",
        "if status is None:",
        "tests/promises/test_questions_midway.py -k right_before_the_pause",
    ),
    Mutant(
        "a row that cannot be read back is no result",
        LIFECYCLE + "doubt.py",
        "if isinstance(row.result, Unreadable) or not isinstance(row.state_update, dict):",
        "if False:",
        "tests/promises/test_recording.py -k cannot_be_read_back",
    ),
    Mutant(
        "a late failure counts for its own attempt",
        LIFECYCLE + "recording.py",
        "is_failure = outcome.status == CallStatus.FAILED",
        "is_failure = False",
        "tests/promises/test_zombies.py -k late_failure",
    ),
    Mutant(
        "a zombie cannot put a call back",
        LIFECYCLE + "ledger.py",
        "            fencing_token=lease.fencing_token,\n            attempts=row.attempts,\n",
        "",
        "tests/promises/test_zombies.py -k put_a_call_back",
    ),
    Mutant(
        "a late result settles the question",
        LIFECYCLE + "recording.py",
        '"status": CallStatus.RUNNING}',
        "}",
        "tests/promises/test_zombies.py -k late_result_settles",
    ),
    Mutant(
        "a failed record is kept for the next commit",
        LIFECYCLE + "recording.py",
        "            progress.unrecorded.append((row, outcome))\n        return",
        "            pass\n        return",
        "tests/promises/test_recording.py -k next_commit",
    ),
    Mutant(
        "a transactional call that was given up is undone",
        LIFECYCLE + "acting.py",
        "if row is not call.row:",
        "if False:",
        "tests/promises/test_hangs.py -k transactional",
        "postgresql",
    ),
    Mutant(
        "a broken line leaves a once call in doubt",
        LIFECYCLE + "acting.py",
        'call.tool.effect == "once" and is_in_doubt(error)):\n        return Outcome',
        "False):\n        return Outcome",
        "tests/promises/test_retries.py -k line_broke",
    ),
    Mutant(
        "no retry of a call in doubt",
        LIFECYCLE + "acting.py",
        'if isinstance(error, LeaseLost) or (call.tool.effect == "once" and is_in_doubt(error)):',
        "if isinstance(error, LeaseLost):",
        "tests/promises/test_retries.py -k line_broke",
    ),
    Mutant(
        "a sleeper asks before an effect",
        LIFECYCLE + "lease.py",
        "        if not mine.exists():\n",
        "        if False:\n",
        "tests/promises/test_zombies.py -k slept_past",
    ),
    Mutant(
        "stop requests are brought to the worker",
        LIFECYCLE + "lease.py",
        "if stop is not None and not control.stop_requested:",
        "if False:",
        "tests/promises/test_stop.py -k hanging_node",
    ),
    Mutant(
        "a start that landed is found again",
        LIFECYCLE + "start.py",
        "if tries > 1 else None",
        "if False else None",
        "tests/promises/test_lost_answers.py -k story",
    ),
    Mutant(
        "an answer that landed is found again",
        LIFECYCLE + "resume.py",
        "if tries > 1 and _is_answer(interrupt, value, user):",
        "if False:",
        "tests/promises/test_lost_answers.py -k no_second_answer",
    ),
    Mutant(
        "an answer is taken once",
        LIFECYCLE + "resume.py",
        "if interrupt.status != InterruptStatus.OPEN:",
        "if False:",
        "tests/lifecycle/test_questions.py -k one_wins",
    ),
    Mutant(
        "a lost connection is tried again",
        "agentruntime/models/transactions.py",
        "if not is_passing(error) or",
        "if True or",
        "tests/promises/test_lost_answers.py -k no_second_answer",
    ),
    Mutant(
        "questions end with their run",
        LIFECYCLE + "finish.py",
        "    close_questions(run)\n    if status",
        "    if status",
        "tests/lifecycle/test_questions.py tests/lifecycle/test_loop.py tests/promises",
    ),
    Mutant(
        "what is not asked again is withdrawn",
        LIFECYCLE + "loop.py",
        "if result.leftover:",
        "if False:",
        "tests/promises/test_questions_midway.py -k withdrawn",
    ),
    Mutant(
        "a memo of a lost worker is unknown",
        LIFECYCLE + "memo.py",
        "return not self.row.is_settled and not self._is_mine",
        "return False",
        "tests/promises/test_questions_midway.py -k memo",
    ),
    Mutant(
        "the requester does not decide",
        "approvals/permissions.py",
        "if approval.requester_id == rights.user_id and not allowed_by_name(",
        "if False and not allowed_by_name(",
        "tests/approvals/test_decide.py -k requester",
    ),
    Mutant(
        "the permission to decide",
        "approvals/permissions.py",
        "if policy.permission and policy.permission not in rights.permissions:",
        "if False:",
        "tests/approvals/test_rules.py tests/approvals/test_wrong_people.py",
    ),
    Mutant(
        "the digest that was shown",
        "approvals/decide.py",
        "    _check_digest(answer, approval)\n",
        "",
        "tests/approvals/test_decide.py -k digest",
    ),
    Mutant(
        "somebody else's thread",
        LIFECYCLE + "start.py",
        "if request.user is not None and thread.user_id != request.user.pk:",
        "if False:",
        "tests/lifecycle/test_start.py -k somebody",
    ),
    Mutant(
        "the same key, another request",
        LIFECYCLE + "start.py",
        "if earlier.request_digest != request.digest:",
        "if False:",
        "tests/lifecycle/test_start.py tests/edges/test_rest.py -k idempot",
    ),
    Mutant(
        "secrets are masked in events",
        "agentruntime/graph/masking.py",
        "key: MASK if _is_secret(str(key), names) else",
        "key: MASK if False else",
        "tests/lifecycle/test_tool_calls.py -k secret",
    ),
]


def judge(mutant: Mutant) -> tuple[str, float]:
    """Try a mutant: `caught`, `lives`, or what is wrong with the list."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        tree = Path(place) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
        file = tree / mutant.file
        text = file.read_text()
        if text.count(mutant.guard) != 1:
            return f"stands {text.count(mutant.guard)} times in {mutant.file}", 0.0
        file.write_text(text.replace(mutant.guard, mutant.without))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", f"--db={mutant.db}",
             "-p", "no:cacheprovider", *_words(mutant.tests)],
            cwd=tree,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    if done.returncode == 1 and (" failed" in done.stdout or " error" in done.stdout):
        return "caught", seconds
    if done.returncode == 0:
        return "LIVES", seconds
    return f"the tests could not run: {done.stdout[-300:]}{done.stderr[-300:]}", seconds


def _words(tests: str) -> list[str]:
    paths, _, expression = tests.partition(" -k ")
    return paths.split() + (["-k", expression] if expression else [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name holds this text")
    only = parser.parse_args().only
    chosen = [one for one in MUTANTS if only in one.name]
    caught = 0
    with ThreadPoolExecutor(AT_ONCE) as judges:
        for mutant, (verdict, seconds) in zip(chosen, judges.map(judge, chosen), strict=True):
            caught += verdict == "caught"
            print(f"{verdict:<8} {mutant.name} ({seconds:.0f} s)", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
