"""`manage.py verify_decisions`: whether anybody has touched the record."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.export import PERMISSION, leave_trace
from approvals.permissions import rights_of
from approvals.record import read_anchor, verify_record

logger = logging.getLogger("approvals")


class Command(BaseCommand):
    help = "Check every decision against its chain. Exit 1 and a line per fault if one is found."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="NAME", help="who checks; kept in the history")
        parser.add_argument(
            "--anchor",
            metavar="NUMBER:HASH",
            help="the end of the chain as an earlier check told it, kept elsewhere",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = self._user(options["user"])
        try:
            anchor = read_anchor(options["anchor"]) if options["anchor"] else None
        except ValueError:
            raise CommandError("An anchor is a number, a colon and 64 hex digits.") from None
        faults, length, head = verify_record(anchor)
        for fault in faults:
            self.stdout.write(f"decision {fault.number} {fault.problem}")
        told = f"{length} decisions, {len(faults)} faults"
        logger.info("The record was verified: %s", told)
        if user_id is not None:
            leave_trace(user_id, f"Verified: {told}")
        if faults:
            raise CommandError(f"The record has been touched: {told}.")
        self.stdout.write(f"The record is whole: {told}. Anchor {length}:{head}")

    def _user(self, name: str | None) -> Any:
        if name is None:
            return None
        user = (
            get_user_model()
            ._default_manager.filter(**{get_user_model().USERNAME_FIELD: name})
            .first()
        )
        rights = rights_of(user) if user else None
        if rights is None or PERMISSION not in rights.permissions:
            raise CommandError(f"{name} does not hold {PERMISSION}.")
        return rights.user_id
