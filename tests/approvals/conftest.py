"""Brings in the fixtures, which need Django: at once, or when pytest has set it up."""

import pytest
from django.apps import apps

if apps.ready:
    from tests.approvals.fixtures import *  # noqa: F403


def pytest_collection(session: pytest.Session) -> None:
    session.config.pluginmanager.import_plugin("tests.approvals.fixtures")
