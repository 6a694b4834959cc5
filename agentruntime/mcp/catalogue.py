"""The catalogue: what each server offers, in the database, so that it is known without asking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError
from django.db.models import F

from agentruntime.graph.json_values import digest
from agentruntime.models import DatabaseTime, McpTool
from agentruntime.models.transactions import durably
from agentruntime.signals import noticed


def read_catalogue(server: str) -> list[McpTool]:
    """Return what a server offers, as it was listed last, by name."""
    return list(McpTool.objects.filter(server=server, is_offered=True).order_by("name"))


def store_listing(server: str, listing: Sequence[dict[str, Any]]) -> None:
    """Make the catalogue say what the server says today. A new tool is pinned as it is; one that
    has changed keeps its pin.
    """
    try:
        durably(lambda: _store(server, listing))
    except IntegrityError:  # another process stored the same new tool: now it is there
        durably(lambda: _store(server, listing))


def _store(server: str, listing: Sequence[dict[str, Any]]) -> None:
    rows = McpTool.objects.select_for_update().filter(server=server).order_by("pk")
    known = {row.name: row for row in rows}
    for one in listing:
        now = digest(one)
        row = known.pop(one["name"], None)
        if row is None:
            McpTool.objects.create(
                server=server,
                name=one["name"],
                listing=one,
                digest=now,
                pinned_digest=now,
                listed_at=DatabaseTime(),
            )
            continue
        if row.digest != now:
            facts = {"server": server, "tool": row.name}
            noticed.send(sender=None, level="warning", event="mcp tool has changed", facts=facts)
        McpTool.objects.filter(pk=row.pk).update(
            listing=one, digest=now, is_offered=True, listed_at=DatabaseTime()
        )
    gone = [row.pk for row in known.values()]
    McpTool.objects.filter(pk__in=gone).update(is_offered=False)


def accept_tool(server: str, name: str, digest: str = "") -> bool:
    """Pin a tool as its server describes it today; say whether it was done.

    With `digest` only if that is still the digest of what the server says.
    """
    rows = McpTool.objects.filter(server=server, name=name)
    if digest:
        rows = rows.filter(digest=digest)
    return rows.update(pinned_digest=F("digest")) > 0
