"""`manage.py crash_demo`: a purchase, a pause, kill -9, and what was charged; told in a terminal.

The narrator looks at the shop's files only. All else happens in processes of their own, on a
SQLite database in a temporary directory.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser

from agentruntime.demo.journal import Entry, Journal
from agentruntime.demo.management.crash_acts import ACTS
from agentruntime.demo.shop import Gateway

PATIENCE_SECONDS = 40.0


class Actor:
    """One process of the story: what it says, and its sudden end."""

    def __init__(self, act: str, about: str, directory: Path, tell: Callable[[str], None]) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
        environment["DATABASE_URL"] = f"sqlite:///{directory / 'db.sqlite3'}"
        command = [sys.argv[0], "crash_demo", "--act", act, "--about", about, "--dir"]
        self.process = subprocess.Popen(
            [sys.executable, "-u", *command, str(directory)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tell = tell
        self._told: set[str] = set()
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def wait_for(self, *beginnings: str) -> str:
        """Tell what the process says until a line begins so for each of `beginnings`; the last."""
        missing = set(beginnings)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(until - time.monotonic(), 0.0))
            except Empty:
                line = None
            if line is None:
                raise CommandError(f"Process {self.pid} never said {sorted(missing)}.")
            self._pass_on(line)
            missing -= {one for one in missing if line.startswith(one)}
            if not missing:
                return line

    def _pass_on(self, line: str) -> None:
        kind, _, words = line.partition(" ")
        if kind not in ("event", "answer") or words in self._told:
            return
        self._told.add(words)
        self.tell(f"    [{self.pid}] {words}")

    def kill(self) -> None:
        """End the process as a lost machine does: kill -9, at once, nothing is tidied up."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Command(BaseCommand):
    """Tells both stories; ends with 1 if anything happened twice."""

    help = "Kills a purchase with -9 in the middle, twice, and counts what was charged."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--act", choices=sorted(ACTS), help="(for its own processes)")
        parser.add_argument("--about", default="", help="(for its own processes)")
        parser.add_argument("--dir", help="(for its own processes)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"]:
            logging.disable(logging.WARNING)  # the narrator tells what a log would
            settings.DEMO_DIR = options["dir"]
            ACTS[options["act"]](options["about"])
            return
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="crash-demo-") as directory:
            right = [self.purchase(Path(directory)), self.fulfilment(Path(directory))]
        self.tell(f"\nTold in {time.monotonic() - begun:.0f} s.")
        if not all(right):
            raise CommandError("Something happened twice, or not at all.")

    def tell(self, line: str = "") -> None:
        self.stdout.write(f"{line}\n", ending="")
        self.stdout.flush()

    def begin(self, actors: list[Actor], act: str, about: str, directory: Path) -> Actor:
        actor = Actor(act, about, directory, self.tell)
        actors.append(actor)
        return actor

    def tell_ledger(self, directory: Path, order_id: str) -> None:
        """Show the gateway's ledger file, the one place where money moves."""
        for entry in entries_of(directory, order_id):
            self.tell(f"  ledger: {entry['kind']} {entry['amount']} EUR  key={entry['key']}")

    # --- the stories -------------------------------------------------------------------------

    def purchase(self, directory: Path) -> bool:
        """Two tools in one turn: one charges the card, one asks. Killed while it waits."""
        self.tell(
            "1. One purchase, one human saying yes. In one turn the model asks for two tools:"
        )
        self.tell('   charge_card(49.00) and confirm_shipping("1 Main St"), which asks a person.\n')
        actors: list[Actor] = []
        try:
            first = self.begin(actors, "start", "purchase", directory)
            self.tell(f"$ process {first.pid} starts the run")
            run_id = first.wait_for("run ").split()[1]
            first.wait_for("event run.interrupted")
            self.tell_ledger(directory, "2001")
            self.tell(f"  paused. charges so far: {charges(directory, '2001')}")
            first.kill()
            self.tell(f"\n$ kill -9 {first.pid}\n")
            second = self.begin(actors, "answer", run_id, directory)
            self.tell(f"$ process {second.pid} starts; the person says yes")
            second.wait_for("end")
        finally:
            for actor in actors:
                actor.kill()
        self.tell_ledger(directory, "2001")
        count, requests = charges(directory, "2001"), requests_for(directory, "2001")
        self.tell(f"  resumed. charges now: {count}")
        self.tell(f"  requests that reached the payment gateway: {requests}\n")
        return count == requests == 1

    def fulfilment(self, directory: Path) -> bool:
        """Three tools in one turn, one of them slow. Killed when two are done."""
        self.tell("2. Three tools in one turn. The worker dies when two are done and one is not.\n")
        actors: list[Actor] = []
        try:
            first = self.begin(actors, "start", "fulfil", directory)
            self.tell(f"$ process {first.pid} starts the run")
            run_id = first.wait_for("run ").split()[1]
            first.wait_for("event tool.finished charge_card", "event tool.finished reserve_stock")
            first.kill()
            killed = time.monotonic()
            self.tell(f"\n$ kill -9 {first.pid}\n")
            second = self.begin(actors, "work", run_id, directory)
            self.tell(f"$ process {second.pid} starts: a worker, nobody tells it what to do")
            second.wait_for("event run.resumed")
            seconds = time.monotonic() - killed
            second.wait_for("end")
        finally:
            for actor in actors:
                actor.kill()
        self.tell(f"  seconds from the kill until the run went on: {seconds:.1f}\n")
        return self.counts(directory)

    def counts(self, directory: Path) -> bool:
        """Tell how often each body of the second story ran; say whether that is right."""
        stock = Journal(directory / "warehouse.jsonl").entries()
        ran = {
            "charge_card": requests_for(directory, "2002"),
            "reserve_stock": sum(one["what"] == "reserved" for one in stock),
            "print_label": sum(one["what"] == "label started" for one in stock),
        }
        keys = {one["key"] for one in stock if one["what"] == "label started"}
        for tool, times in ran.items():
            why = f", with {len(keys)} key: it was killed at work" if times > 1 else ""
            self.tell(f"  {tool:<14}ran {times} time{'s' if times != 1 else ''}{why}")
        self.tell(f"  charges now: {charges(directory, '2002')}")
        return ran == {"charge_card": 1, "reserve_stock": 1, "print_label": 2} and len(keys) == 1


def charges(directory: Path, order_id: str) -> int:
    """Return how often money was taken for a purchase."""
    return len(Gateway(Journal(directory / "payments.jsonl")).moved("charge", order_id))


def requests_for(directory: Path, order_id: str) -> int:
    """Return how many requests about a purchase reached the gateway, repeats included."""
    return len(entries_of(directory, order_id))


def entries_of(directory: Path, order_id: str) -> list[Entry]:
    """Return the lines of the gateway's ledger about a purchase."""
    entries = Journal(directory / "payments.jsonl").entries()
    return [entry for entry in entries if entry["order_id"] == order_id]
