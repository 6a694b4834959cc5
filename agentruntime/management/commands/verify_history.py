"""`manage.py verify_history`: whether what is stored can have happened."""

from __future__ import annotations

import argparse
import sys
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from agentruntime.invariants import Scope, find_violations, invariants
from agentruntime.invariants.bank import compare_with_bank


class Command(BaseCommand):
    help = "Asks every invariant of the history; prints what breaks one. Exit: 0 sound, 1 not."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--thread", help="only this thread")
        parser.add_argument("--since", help="only threads with news since then (ISO 8601)")
        parser.add_argument("--bank", type=Path, help="JSON lines that a provider wrote")

    def handle(self, *args: Any, thread: str, since: str, bank: Path, **options: Any) -> None:
        scope = Scope(_thread(thread), _moment(since))
        found = list(find_violations(scope))
        if bank is not None:
            if not bank.is_file():
                raise CommandError(f"There is no file {bank}.")
            found += compare_with_bank(bank, scope if scope != Scope() else None)
        for one in found:
            where = f"thread {one.thread or '-'} run {one.run or '-'}"
            self.stdout.write(f"{one.invariant}: {where}: {one.detail}")
        self.stderr.write(f"{len(invariants())} invariants, {len(found)} violations")
        if found:
            sys.exit(1)


def _thread(given: str | None) -> uuid.UUID | None:
    try:
        return uuid.UUID(given) if given else None
    except ValueError:
        raise CommandError(f"{given!r} is no thread id.") from None


def _moment(given: str | None) -> datetime | None:
    if not given:
        return None
    try:
        moment = parse_datetime(given)
        if moment is None and (day := parse_date(given)):
            moment = datetime(day.year, day.month, day.day)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(f"{given!r} is no date or time; use one like 2026-11-30T12:00:00.")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
