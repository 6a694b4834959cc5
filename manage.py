#!/usr/bin/env python
"""Django's command line for this site."""

import importlib
import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except ImproperlyConfigured as error:
        # A sentence that names a variable says more than the way to it.
        print(error, file=sys.stderr)
        sys.exit(2)
    execute_from_command_line(sys.argv)
