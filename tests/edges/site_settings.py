"""The site's settings, with what a test lays over them in its environment."""

import json
import os

from config.settings import *  # noqa: F403
from config.settings import AGENTRUNTIME as BEFORE

AGENTRUNTIME = {**BEFORE, **json.loads(os.environ.get("SITE_AGENTRUNTIME", "{}"))}
