"""The broker that wakes workers: Redis where there is one, otherwise this process itself.

Only ids travel, and nothing is lost with a message: the sweep finds what the doorbell missed. The
middlewares that come with a second retry policy, or with callbacks chosen by whoever can write to
the broker, are left out.
"""

from __future__ import annotations

import logging
import os
import threading

import dramatiq
import redis
from django.conf import settings
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import Middleware
from redis.backoff import NoBackoff
from redis.retry import Retry

from agentruntime.conf import runtime_settings

logger = logging.getLogger(__name__)
# A Redis that is down or hangs costs a request this much, once (see `dispatch`), and no run.
CONNECT_SECONDS = 0.5
ANSWER_SECONDS = 1.0

_embedded: dramatiq.Worker | None = None
_lock = threading.Lock()


def make_broker(*middleware: Middleware) -> dramatiq.Broker:
    """Return the broker of this process, set as Dramatiq's own."""
    url = getattr(settings, "REDIS_URL", "")
    if url:
        client = redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=30,
        )
        broker: dramatiq.Broker = RedisBroker(
            client=client,
            middleware=list(middleware),
            namespace=f"{runtime_settings().QUEUE_NAME}:queue",
        )
    else:
        broker = StubBroker(middleware=list(middleware))
        broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    return broker


def is_embedded() -> bool:
    """Say whether this process works off its own runs, for want of a broker."""
    wanted = runtime_settings().EMBEDDED_WORKER
    return isinstance(dramatiq.get_broker(), StubBroker) if wanted is None else wanted


def start_embedded_worker() -> None:
    """Start the worker threads of this process once; for a process without a broker."""
    global _embedded
    with _lock:
        if _embedded is None:
            threads = runtime_settings().EMBEDDED_WORKER_THREADS
            _embedded = dramatiq.Worker(
                dramatiq.get_broker(), worker_threads=threads, worker_timeout=50
            )
            _embedded.start()


def stop_embedded_worker() -> None:
    """Let the embedded worker finish what it holds, and end it; nothing happens without one."""
    global _embedded
    with _lock:
        worker, _embedded = _embedded, None
    if worker is not None:
        worker.join()
        worker.stop()


def _forget() -> None:
    global _embedded, _lock
    _embedded, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
