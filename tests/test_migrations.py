"""The tables are what the models say."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor


@pytest.mark.django_db
def test_no_change_of_a_model_lacks_its_migration():
    output = StringIO()
    try:
        call_command("makemigrations", check=True, dry_run=True, stdout=output, stderr=output)
    except SystemExit:
        pytest.fail(output.getvalue(), pytrace=False)


@pytest.mark.django_db
def test_every_migration_is_applied_to_the_database_in_use():
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


@pytest.mark.parametrize("app", ["agentruntime", "approvals"])
def test_migrations_are_named_by_what_they_do(app):
    loader = MigrationExecutor(connection=None).loader
    names = [name for label, name in loader.disk_migrations if label == app]
    assert names
    assert [name for name in names if "_auto_" in name] == []
