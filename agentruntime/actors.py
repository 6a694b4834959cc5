"""The actor that Dramatiq runs, and what lives beside it in every worker process: the sweep."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import dramatiq
from django.db import close_old_connections, connections
from dramatiq.middleware import Middleware

from agentruntime.broker import make_broker
from agentruntime.conf import runtime_settings
from agentruntime.dispatch import ACTOR
from agentruntime.lifecycle.lease import keeper
from agentruntime.lifecycle.loop import execute
from agentruntime.lifecycle.recover import sweep
from agentruntime.signals import noticed


class Sweeper(Middleware):
    """Runs the sweep while a worker runs, and lets held runs go when it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._workers = 0

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop = threading.Event()
        places = threading.Semaphore(max(len(worker.workers), 1))
        keeper.resume()
        threading.Thread(
            target=self._sweep_on, args=(self._stop, places), name="agentruntime-sweep", daemon=True
        ).start()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop.set()
        keeper.drain()

    def _sweep_on(self, stop: threading.Event, places: threading.Semaphore) -> None:
        while True:
            try:
                for run_id in sweep():
                    if stop.is_set() or not places.acquire(blocking=False):
                        break
                    threading.Thread(
                        target=self._take_up,
                        args=(run_id, places),
                        name="agentruntime-run",
                        daemon=True,
                    ).start()
            except Exception as error:  # a sweep that fails is tried again, for ever
                noticed.send(
                    sender=None, level="warning", event="sweep failed", facts={"error": repr(error)}
                )
            finally:
                connections.close_all()
            if stop.wait(runtime_settings().SWEEP_SECONDS):
                return

    def _take_up(self, run_id: uuid.UUID, places: threading.Semaphore) -> None:
        try:
            execute(run_id)
        finally:
            connections.close_all()
            places.release()


class Connections(Middleware):
    """Gives a thread's database connections back when its message is done."""

    def before_process_message(self, broker: dramatiq.Broker, message: Any) -> None:
        close_old_connections()

    def after_process_message(
        self, broker: dramatiq.Broker, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        connections.close_all()


broker = make_broker(Sweeper(), Connections())


@dramatiq.actor(broker=broker, actor_name=ACTOR, queue_name=runtime_settings().QUEUE_NAME)
def execute_run(run_id: str) -> None:
    """Work on a run until it pauses, ends, or its time slice is over. Errors end in the run's
    row.
    """
    execute(uuid.UUID(run_id))
