"""The site's settings with the agents of the fault tests, for processes beside a test."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS as SITE_APPS

INSTALLED_APPS = [*SITE_APPS, "tests.faults.work"]
