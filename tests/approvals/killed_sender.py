"""Sends what is due and is killed at a point: `python -m tests.approvals.killed_sender SETTINGS`.

Each line on stdin names a channel and a point. For each a child is forked that sends until it gets
there, and there kills itself with SIGKILL; its end is printed as the number of the signal.
"""

import json
import os
import signal
import sys
from typing import Any


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django
    from django.test.utils import override_settings

    django.setup()
    with override_settings(**json.loads(sys.argv[1])):
        print("ready", flush=True)
        for line in sys.stdin:
            channel, point = line.strip().split("|")
            child = os.fork()
            if not child:
                send(channel, point)
                os._exit(0)
            ended = os.waitpid(child, 0)[1]
            print(os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else 0, flush=True)


def send(channel: str, point: str) -> None:
    from approvals.notifications import sending

    def dying(real: Any, after: bool) -> Any:
        def call(*args: Any) -> Any:
            if after:
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    if point == "before taking":
        sending.take_next = dying(sending.take_next, after=False)
    elif point == "after sending":
        sending.SENDERS[channel] = dying(sending.SENDERS[channel], after=True)
    elif point == "before sending":
        sending.SENDERS[channel] = dying(sending.SENDERS[channel], after=False)
    else:  # inside the transaction that marks it, before its commit
        sending.mark_sent = dying(sending.mark_sent, after=True)
    sending.send_due()


if __name__ == "__main__":
    main()
