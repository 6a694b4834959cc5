"""Whether the suite notices when a guard is taken away: `make mutants`.

Each mutant (`tests.guards`) is one guard removed in a copy of the tree, and the tests that must
turn red. Prints `N of N caught`; exits non-zero for a mutant that lives, or one whose guard is not
where the list says (then the list is to be brought up to date). `--only TEXT` picks some by name.
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
from pathlib import Path

from tests.guards import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache",
    "*.sqlite3*",
)  # fmt: skip
AT_ONCE = 2


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
