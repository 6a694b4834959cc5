"""`manage.py mcp_tools`: what MCP servers offer, and letting a changed tool in."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentruntime.mcp.catalogue import accept_tool
from agentruntime.models import McpTool


class Command(BaseCommand):
    help = (
        "Lists the known tools of MCP servers; with a server and a tool, shows what the server "
        "says of it, and lets it in as it is said today with --accept."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("server", nargs="?", help="name of the server")
        parser.add_argument("tool", nargs="?", help="name of the tool there")
        parser.add_argument("--accept", metavar="DIGEST", help="let it in, as it was shown with it")

    def handle(self, *args: Any, **options: Any) -> None:
        named = {"server": options["server"], "name": options["tool"]}
        rows = McpTool.objects.filter(**{key: value for key, value in named.items() if value})
        if options["tool"] is None:
            if options["accept"]:
                raise CommandError("Name the server and the tool that is to be let in.")
            for row in rows.order_by("server", "name"):
                self.stdout.write(f"{row.server}  {row.name}  {_standing(row)}")
            return
        row = rows.first()
        if row is None:
            raise CommandError(f"No tool {options['tool']!r} of {options['server']!r} is known.")
        if not options["accept"]:
            self.stdout.write(json.dumps(row.listing, indent=2, ensure_ascii=False))
            self.stdout.write(f"{_standing(row)}; digest {row.digest}")
        elif accept_tool(row.server, row.name, digest=options["accept"]):
            self.stdout.write(f"{row} is let in.")
        else:
            raise CommandError(f"{row} is described otherwise than with this digest: not let in.")


def _standing(row: McpTool) -> str:
    if not row.is_offered:
        return "no longer offered"
    return "has changed" if row.is_changed else "as it was let in"
