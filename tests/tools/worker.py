"""One claim of a run in a process of its own: `python -m tests.tools.worker RUN`."""

import os
import sys
import uuid


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django
    from django.conf import settings

    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}
    django.setup()
    from agentruntime.lifecycle.loop import execute
    from tests.tools.farm import register_agents

    register_agents()
    execute(uuid.UUID(sys.argv[1]))


if __name__ == "__main__":
    main()
