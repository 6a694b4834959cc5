"""`manage.py decide APPROVAL approve|decline --user NAME`: the one door, from a shell."""

from __future__ import annotations

import argparse
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentruntime.graph.json_values import NotJson, read_json
from approvals.decide import decide
from approvals.exceptions import ApprovalError
from approvals.models import Door, Verdict


class Command(BaseCommand):
    help = (
        "Decide an approval, with the same checks as in the admin. Exit: 0 decided, 1 refused, "
        "2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("approval", help="the id of the approval")
        parser.add_argument("verdict", choices=Verdict.values)
        parser.add_argument("--user", required=True, metavar="NAME", help="who decides")
        parser.add_argument("--reason", default="", metavar="TEXT")
        parser.add_argument(
            "--arguments", type=json_object, metavar="JSON", help="the changed arguments"
        )
        parser.add_argument("--digest", metavar="HEX", help="what was shown; refused if it changed")

    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()
        try:
            user = users._default_manager.get_by_natural_key(options["user"])
        except users.DoesNotExist:
            raise CommandError(f"There is no user {options['user']!r}.", returncode=2) from None
        try:
            decision = decide(
                approval_id=options["approval"],
                verdict=options["verdict"],
                user=user,
                digest=options["digest"],
                reason=options["reason"],
                arguments=options["arguments"],
                door=Door.SHELL,
            )
        except ApprovalError as refused:
            usage = refused.status in (400, 404)
            raise CommandError(f"{refused} [{refused.code}]", returncode=1 + usage) from None
        done = "" if decision.is_final else " (others have to agree)"
        self.stdout.write(f"{decision.by} {decision.what} {decision.approval_id}{done}")


def json_object(text: str) -> dict[str, Any]:
    """Return the object that `text` is; refuses what is none, with a sentence."""
    try:
        found = read_json(text)
    except NotJson as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("an object was expected")
    return found
