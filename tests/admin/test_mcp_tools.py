"""A changed tool of an MCP server is let in as it was shown: in the admin, and from a shell."""

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentruntime.models import McpTool

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database("sqlite")]
PLACE = "/admin/agentruntime/mcptool/"
RIGHTS = ("agentruntime.view_mcptool", "agentruntime.change_mcptool")


@pytest.fixture
def changed():
    listing = {"name": "read", "description": "<b>Reads</b>", "schema": {"type": "object"}}
    return McpTool.objects.create(
        server="files", name="read", listing=listing, digest="new", pinned_digest="old",
        listed_at=timezone.now(),
    )  # fmt: skip


@pytest.fixture
def staff(person, client):
    def log_in(*permissions):
        client.force_login(person("sta", *permissions, is_staff=True))
        return client

    return log_in


def post(client, row, **more):
    given = {"action": "accept", "_selected_action": [row.pk], **more}
    return client.post(PLACE, given, follow=True)


def test_what_was_shown_is_let_in_and_nothing_else(staff, changed):
    client = staff(*RIGHTS)
    shown = post(client, changed).content.decode()
    assert "&lt;b&gt;Reads" in shown
    assert "<b>Reads" not in shown
    McpTool.objects.update(digest="newer")  # while it is being read
    late = post(client, changed, let_in="1", **{f"digest-{changed.pk}": "new"})
    assert "has changed again" in late.content.decode()
    changed.refresh_from_db()
    assert changed.is_changed
    post(client, changed, let_in="1", **{f"digest-{changed.pk}": "newer"})
    changed.refresh_from_db()
    assert not changed.is_changed


def test_without_the_digest_that_was_shown_nothing_is_let_in(staff, changed):
    post(staff(*RIGHTS), changed, let_in="1")
    changed.refresh_from_db()
    assert changed.is_changed


def test_who_may_only_look_lets_nothing_in(staff, changed):
    client = staff(RIGHTS[0])
    assert client.get(f"{PLACE}?changed=yes").status_code == 200
    post(client, changed, let_in="1", **{f"digest-{changed.pk}": "new"})
    changed.refresh_from_db()
    assert changed.is_changed


def test_from_a_shell(changed, capsys):
    call_command("mcp_tools")
    assert "files  read  has changed" in capsys.readouterr().out
    call_command("mcp_tools", "files", "read")
    assert "digest new" in capsys.readouterr().out
    for wrong in (["files", "read", "--accept", "old"], ["files", "write"], ["--accept", "new"]):
        with pytest.raises(CommandError):
            call_command("mcp_tools", *wrong)
    call_command("mcp_tools", "files", "read", "--accept", "new")
    changed.refresh_from_db()
    assert not changed.is_changed
