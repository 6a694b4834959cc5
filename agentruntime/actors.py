"""The actor that Dramatiq runs, and what lives beside it in every worker process: the sweep."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from typing import Any

import dramatiq
from django.db import close_old_connections, connections, reset_queries
from dramatiq.middleware import Middleware

from agentruntime.broker import is_embedded, make_broker
from agentruntime.conf import runtime_settings
from agentruntime.crash import crash_point
from agentruntime.dispatch import ACTOR, ring
from agentruntime.event_loops import end_event_loop
from agentruntime.lifecycle.lease import keeper
from agentruntime.lifecycle.loop import execute
from agentruntime.lifecycle.recover import Outage, sweep
from agentruntime.mcp import close_connections
from agentruntime.signals import noticed

LAST_COMMIT_SECONDS = 2.0
PASS_ON_SECONDS = 0.05
"""How long a worker that ends holds a message that it took all the same: others are next."""


class Sweeper(Middleware):
    """Runs the sweep while a worker runs, and lets held runs go when it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop = threading.Event()
        places = threading.Semaphore(max(len(worker.workers), 1))
        keeper.resume()
        self._hear_the_signal()
        threading.Thread(
            target=self._sweep_on, args=(self._stop, places), name="agentruntime-sweep", daemon=True
        ).start()

    def _hear_the_signal(self) -> None:
        """Begin to let go the moment SIGTERM comes; Dramatiq looks for it once a second."""
        if threading.current_thread() is not threading.main_thread():
            return  # a worker inside of another process: its owner says when it ends
        before = signal.getsignal(signal.SIGTERM)
        if not callable(before):
            return

        def on_term(number: int, frame: Any) -> None:
            # A handler runs between any two instructions of the main thread: it takes no lock.
            threading.Thread(target=self._let_go, daemon=True).start()
            before(number, frame)

        signal.signal(signal.SIGTERM, on_term)

    def _let_go(self) -> None:
        self._stop.set()
        keeper.drain()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._let_go()

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Wait for the runs that the sweep took up, whose threads are not Dramatiq's; then close
        the connections to models and MCP servers.
        """
        until = time.monotonic() + runtime_settings().GRACE_SECONDS + LAST_COMMIT_SECONDS
        while not keeper.is_idle and time.monotonic() < until:
            time.sleep(0.02)
        if keeper.is_idle:
            end_event_loop()
            close_connections()

    def _sweep_on(self, stop: threading.Event, places: threading.Semaphore) -> None:
        outage = Outage()
        while not stop.is_set():
            try:
                self._sweep_once(stop, places, outage)
            except Exception as error:  # a sweep that fails is tried again, for ever
                _tell("sweep failed", error)
            finally:
                connections.close_all()
            stop.wait(runtime_settings().SWEEP_SECONDS)

    def _sweep_once(
        self, stop: threading.Event, places: threading.Semaphore, outage: Outage
    ) -> None:
        for run_id in sweep(outage):
            if stop.is_set() or not places.acquire(blocking=False):
                return
            threading.Thread(
                target=self._take_up, args=(run_id, places), name="agentruntime-run", daemon=True
            ).start()

    def _take_up(self, run_id: uuid.UUID, places: threading.Semaphore) -> None:
        try:
            execute(run_id)
        except Exception as error:
            _tell("a run could not be taken up", error)
        finally:
            connections.close_all()
            places.release()


def _tell(event: str, error: Exception) -> None:
    noticed.send(sender=None, level="warning", event=event, facts={"error": repr(error)})


class Connections(Middleware):
    """Gives a thread's database connections back when its message is done."""

    def before_process_message(self, broker: dramatiq.Broker, message: Any) -> None:
        close_old_connections()

    def after_process_message(
        self, broker: dramatiq.Broker, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        connections.close_all()
        reset_queries()  # with DEBUG, Django keeps every statement

    def after_ack(self, broker: dramatiq.Broker, message: Any) -> None:
        crash_point("P15")


broker = make_broker(Sweeper(), Connections())


@dramatiq.actor(broker=broker, actor_name=ACTOR, queue_name=runtime_settings().QUEUE_NAME)
def execute_run(run_id: str) -> None:
    """Work on a run until it pauses, ends, or its time slice is over. Errors end in the run's
    row.
    """
    if keeper.is_draining and not is_embedded():
        time.sleep(PASS_ON_SECONDS)
        ring(uuid.UUID(run_id))
        return
    execute(uuid.UUID(run_id))
    crash_point("P14")
