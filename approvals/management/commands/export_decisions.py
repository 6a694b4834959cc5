"""`manage.py export_decisions --user NAME`: the record for auditors, on standard output."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.exceptions import NotAllowed
from approvals.export import FORMATS, export_decisions
from approvals.permissions import rights_of


class Command(BaseCommand):
    help = "Write the record of decisions; needs approvals.export_decisions and leaves a trace."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME", help="who takes it")
        parser.add_argument("--format", choices=sorted(FORMATS), default="jsonl")

    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()
        user = users._default_manager.filter(**{users.USERNAME_FIELD: options["user"]}).first()
        try:
            lines = export_decisions(rights_of(user) if user else None, options["format"])
        except NotAllowed as refused:
            raise CommandError(str(refused)) from None
        for line in lines:
            self.stdout.write(line, ending="")
