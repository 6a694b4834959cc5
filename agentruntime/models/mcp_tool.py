"""`McpTool`: what an MCP server offers, as it was listed last and as it was known first."""

from __future__ import annotations

from django.db import models

from agentruntime.models.stored_json import StoredJSON


class McpTool(models.Model):
    """One tool of one server, known without asking the server.

    `listing` is {"name", "description", "schema"} as the server says it today and `digest` the
    digest of that; `pinned_digest` is the one that the host's policy for the tool was made for.
    """

    server = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    listing = StoredJSON(default=dict)
    digest = models.CharField(max_length=64)
    pinned_digest = models.CharField(max_length=64)
    is_offered = models.BooleanField(default=True)
    listed_at = models.DateTimeField()

    class Meta:
        db_table = "agentruntime_mcptool"
        constraints = (
            models.UniqueConstraint(fields=["server", "name"], name="mcp_tool_once_per_server"),
        )

    def __str__(self) -> str:
        return f"{self.server} {self.name}"

    @property
    def is_changed(self) -> bool:
        """Whether the server describes it otherwise than when it was let in."""
        return self.digest != self.pinned_digest
