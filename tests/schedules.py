"""Random schedules, many: `make schedules N=10000`, or `python -m tests.schedules N`.

All of them on SQLite, and a tenth more on PostgreSQL, half in one process and half in another.
Prints what they did (`tests.promises.test_state_machine`); ends with 0 if all were sound.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

FILE = "tests/promises/test_state_machine.py"
PROCESSES = 2


def run(number: int, db: str) -> bool:
    """Run so many schedules on one database, side by side; say whether all were sound."""
    print(f"{number} schedules on {db}, in {PROCESSES} processes", flush=True)
    environment = {**os.environ, "SCHEDULES": str(-(-number // PROCESSES))}
    command = [sys.executable, "-m", "pytest", "-q", "-s", f"--db={db}", FILE]
    running = [subprocess.Popen(command, env=environment) for _ in range(PROCESSES)]
    return not any([process.wait() for process in running])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("number", type=int)
    number = parser.parse_args().number
    sound = run(number, "sqlite")
    return 0 if run(-(-number // 10), "postgresql") and sound else 1


if __name__ == "__main__":
    sys.exit(main())
