"""The broker that wakes workers: Redis where there is one, otherwise this process itself.

Only ids travel, and nothing is lost with a message: the sweep finds what the doorbell missed. The
middlewares that come with a second retry policy, or with callbacks chosen by whoever can write to
the broker, are left out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

import dramatiq
import redis
from django.conf import settings
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import Middleware
from redis.backoff import NoBackoff
from redis.retry import Retry

from agentruntime.conf import runtime_settings

logger = logging.getLogger(__name__)
# A Redis that is down or hangs costs a request this much, once (see `dispatch`), and no run.
CONNECT_SECONDS = 0.5
ANSWER_SECONDS = 1.0
WAIT_SECONDS = 0.5
"""How long a consumer waits for the bell before it looks by itself; below `ANSWER_SECONDS`."""
FULL_SECONDS = 0.005
MOST_RINGS = 16

_embedded: dramatiq.Worker | None = None
_lock = threading.Lock()


class BellBroker(RedisBroker):
    """Dramatiq's broker, with a list beside each queue that a message rings.

    Its own consumers look again and again, and the less often the longer nothing came: the message
    that ends a silence waits. These wait on the list. A ring that is lost costs one wait.
    """

    @property
    def consumer_class(self) -> type[_RedisConsumer]:
        return BellConsumer

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        message = super().enqueue(message, delay=delay)
        bell = self.bell_of(message.queue_name)
        pipeline = self.client.pipeline(transaction=False)
        pipeline.lpush(bell, "1").ltrim(bell, 0, MOST_RINGS - 1).execute()
        return message

    def bell_of(self, queue_name: str) -> str:
        return f"{self.namespace}:{queue_name}.bell"


class BellConsumer(_RedisConsumer):
    """Takes what there is, and waits for the bell when that is nothing."""

    def __init__(self, broker: BellBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout=1)  # to look, not to wait

    def __next__(self) -> Any:
        message = super().__next__()
        if message is None:
            self._wait()
        return message

    def _wait(self) -> None:
        if self.outstanding_message_count >= self.prefetch:
            time.sleep(FULL_SECONDS)
            return
        try:
            self.broker.client.blpop([self.broker.bell_of(self.queue_name)], WAIT_SECONDS)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionClosed(error) from None


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
        broker: dramatiq.Broker = BellBroker(
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
