"""The record: immutable in the database, chained, verified, exported, told in Django's history."""

import csv
import io
import json
import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from approvals.decide import decide
from approvals.immutability import unprotected
from approvals.models import Approval, Chain, Decision

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def decided(ask, bob):
    for number in range(3):
        decide(approval_id=ask(order_id=f"10{number}").pk, verdict="approve", user=bob, reason="ok")
    return list(Decision.objects.order_by("number"))


def refused(sql, *values):
    with pytest.raises(DatabaseError, match="immutable"), transaction.atomic():
        connection.cursor().execute(sql, values)


def test_the_database_refuses_update_delete_and_truncate(decided):
    refused("UPDATE approvals_decision SET reason = 'x'")
    refused("DELETE FROM approvals_decision")
    if connection.vendor == "postgresql":
        refused("TRUNCATE approvals_decision CASCADE")
        refused("TRUNCATE approvals_approval CASCADE")
    else:
        columns = ", ".join(field.column for field in Decision._meta.fields)
        refused(
            f"INSERT OR REPLACE INTO approvals_decision SELECT {columns} FROM approvals_decision"
        )
    with pytest.raises(DatabaseError, match="immutable"), transaction.atomic():
        Decision.objects.update(reason="x")
    with pytest.raises(DatabaseError, match="immutable"), transaction.atomic():
        Decision.objects.all().delete()
    assert list(Decision.objects.order_by("number")) == decided


def test_decisions_are_numbered_and_chained(decided):
    assert [one.number for one in decided] == [1, 2, 3]
    assert [one.previous_hash for one in decided] == ["0" * 64, decided[0].hash, decided[1].hash]
    chain = Chain.objects.get()
    assert (chain.length, chain.head) == (3, decided[2].hash)


def verify(*args):
    out = io.StringIO()
    call_command("verify_decisions", *args, stdout=out)
    return out.getvalue()


def test_a_whole_record_is_called_whole_and_gives_its_anchor(decided):
    told = verify()
    assert "3 decisions, 0 faults" in told
    anchor = told.split("Anchor ")[1].strip()
    decided_later = verify("--anchor", anchor)
    assert "whole" in decided_later
    with pytest.raises(CommandError):
        verify("--anchor", f"2:{'a' * 64}")


CHANGES = {
    "reason": "UPDATE approvals_decision SET reason = 'oh' WHERE number = 2",
    "verdict": "UPDATE approvals_decision SET verdict = 'decline' WHERE number = 2",
    "by": "UPDATE approvals_decision SET \"by\" = 'Bob' WHERE number = 2",
    "user": "UPDATE approvals_decision SET user_id = 12345 WHERE number = 2",
    "statement": "UPDATE approvals_decision SET statement = replace(statement, 'ok', 'oK')"
    " WHERE number = 2",
    "seen": "UPDATE approvals_decision SET seen = '{}' WHERE number = 2",
    "rights": "UPDATE approvals_decision SET rights = '{}' WHERE number = 2",
    "hash": "UPDATE approvals_decision SET hash = replace(hash, substr(hash, 1, 1), 'g')"
    " WHERE number = 2",
    "middle": "DELETE FROM approvals_decision WHERE number = 2",
    "last": "DELETE FROM approvals_decision WHERE number = 3",
    "all": "DELETE FROM approvals_decision",
    "approval": "UPDATE approvals_approval SET status = 'declined'",
    "chain": "UPDATE approvals_chain SET length = 2",
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_behind_the_triggers_is_found(decided, change):
    with unprotected():
        connection.cursor().execute(CHANGES[change])
    with pytest.raises(CommandError, match="touched"):
        verify()


def test_missing_triggers_are_found(decided):
    with unprotected(), pytest.raises(CommandError, match="touched"):
        verify()


def test_an_export_needs_the_permission_and_leaves_a_trace(decided, bob, person, client):
    auditor = person("auditor", "approvals.export_decisions", "approvals.view_decision")
    with pytest.raises(CommandError, match="export_decisions"):
        call_command("export_decisions", "--user", "bob")
    out = io.StringIO()
    call_command("export_decisions", "--user", "auditor", "--format", "jsonl", stdout=out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["number"] for row in rows] == [1, 2, 3]
    assert rows[0]["by"] == "bob"
    assert rows[0]["amount"] == "30.00"
    trace = LogEntry.objects.get(user=auditor)
    assert trace.change_message == "Exported 3 decisions as jsonl"
    client.force_login(bob)
    assert client.post("/admin/approvals/decision/export/", {"format": "csv"}).status_code == 403
    client.force_login(auditor)
    assert client.get("/admin/approvals/decision/export/").status_code == 405
    page = client.get("/admin/approvals/decision/")
    assert "Export the whole record" in page.text
    answer = client.post("/admin/approvals/decision/export/", {"format": "csv"})
    text = b"".join(answer.streaming_content).decode()
    assert len(list(csv.DictReader(io.StringIO(text)))) == 3


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", " =", "\r=", "＝"])
def test_no_cell_of_a_csv_is_a_formula(ask, bob, person, start):
    person("auditor", "approvals.export_decisions")
    attack = f"{start}cmd|' /C calc'!A0"
    decide(approval_id=ask(reason=attack).pk, verdict="decline", user=bob, reason=attack)
    out = io.StringIO()
    call_command("export_decisions", "--user", "auditor", "--format", "csv", stdout=out)
    row = next(csv.DictReader(io.StringIO(out.getvalue())))
    assert row["reason"] == f"'{attack}"


def test_deleting_a_person_or_a_thread_leaves_the_record(decided, bob):
    from agentruntime.lifecycle import delete_thread

    for approval in Approval.objects.all():
        delete_thread(thread_id=approval.thread_id)
    bob.delete()
    assert [one.by for one in Decision.objects.all()] == ["bob"] * 3
    assert Approval.objects.filter(interrupt__isnull=True).count() == 3
    assert "0 faults" in verify()


def test_the_history_of_the_admin_tells_the_story(ask, bob, client):
    approval = ask()
    client.force_login(bob)
    client.post(f"/admin/approvals/approval/{approval.pk}/claim/")
    decide(approval_id=approval.pk, verdict="approve", user=bob)
    history = client.get(f"/admin/approvals/approval/{approval.pk}/history/")
    assert history.status_code == 200
    assert "Claimed" in history.text
    assert "Approved (Python)" in history.text


def test_nothing_of_the_record_can_be_changed_in_the_admin(decided, person, client):
    client.force_login(person("root", is_superuser=True))
    for path in ("add/", f"{decided[0].pk}/delete/"):
        assert client.get(f"/admin/approvals/decision/{path}").status_code == 403
    assert client.get(f"/admin/approvals/decision/{decided[0].pk}/change/").status_code == 200
    body = {"reason": "x", "_save": "Save"}
    page = client.post(f"/admin/approvals/decision/{decided[0].pk}/change/", body)
    assert page.status_code == 403
    for path in ("add/", f"{decided[0].approval_id}/delete/"):
        assert client.get(f"/admin/approvals/approval/{path}").status_code == 403
    assert client.get(f"/admin/approvals/approval/{uuid.uuid4()}/change/").status_code == 404


def test_no_decision_without_its_record(ask, bob, monkeypatch, work, shop):
    approval = ask()

    def fail(**_):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("approvals.decide.append_decision", fail)
    with pytest.raises(RuntimeError):
        decide(approval_id=approval.pk, verdict="approve", user=bob)
    work()
    approval.refresh_from_db()
    assert (approval.status, approval.interrupt.status, shop.refunds) == ("pending", "open", [])
