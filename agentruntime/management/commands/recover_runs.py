"""`manage.py recover_runs`: one sweep."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from agentruntime.broker import is_embedded, stop_embedded_worker
from agentruntime.lifecycle import recover_runs


class Command(BaseCommand):
    help = (
        "One sweep: lapsed leases, lost messages, passed deadlines. Without a broker it does "
        "the work itself."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        found = recover_runs()
        for run_id in found:
            self.stdout.write(str(run_id))
        if is_embedded():
            stop_embedded_worker()
        self.stderr.write(f"{len(found)} runs taken up")
