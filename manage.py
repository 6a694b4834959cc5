#!/usr/bin/env python
"""Django's command line for this site."""

import importlib
import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError, connection


def why_unreachable() -> str:
    """Return why the database takes no connection; empty if it takes one."""
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    try:
        connection.Database.connect(**parameters).close()
    except connection.Database.OperationalError as error:
        return " ".join(str(error).split())
    return ""


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # A sentence that names a variable says more than the way to it.
        print(error, file=sys.stderr)
        sys.exit(2)
    except OperationalError:
        reason = why_unreachable()
        if not reason:
            raise
        print(f"The database of DATABASE_URL cannot be reached: {reason}", file=sys.stderr)
        sys.exit(1)
