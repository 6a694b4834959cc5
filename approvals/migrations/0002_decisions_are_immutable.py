"""Have the database refuse every change of a decision."""

from typing import Any

from django.db import migrations

from approvals.immutability import protect, unprotect


def forwards(apps: Any, schema_editor: Any) -> None:
    protect(schema_editor.connection)


def backwards(apps: Any, schema_editor: Any) -> None:
    unprotect(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
