"""The bell beside the queue: nobody looks again and again, and nobody waits."""

import os
import threading

import dramatiq
import pytest
from django.core.management import call_command

from agentruntime import broker
from tests.waiting import wait_until


@pytest.fixture
def bell(redis_url, settings, monkeypatch):
    """A broker whose consumers would wait for half a minute, were they not rung for."""
    before = dramatiq.get_broker()
    settings.REDIS_URL = redis_url
    monkeypatch.setattr(broker, "WAIT_SECONDS", 30)
    monkeypatch.setattr(broker, "ANSWER_SECONDS", 40)
    made = broker.make_broker()
    made.declare_queue("bell")
    yield made
    made.flush_all()
    made.client.delete(made.bell_of("bell"))
    dramatiq.set_broker(before)


def message():
    return dramatiq.Message(queue_name="bell", actor_name="any", args=(), kwargs={}, options={})


def test_the_message_that_ends_a_silence_is_taken_at_once(bell):
    taken = []
    consumer = bell.consume("bell", prefetch=1, timeout=1000)

    def consume():
        while not taken:
            taken.extend(one for one in [next(consumer)] if one is not None)

    waiting = threading.Thread(target=consume, daemon=True)
    waiting.start()
    wait_until(lambda: bell.client.info("clients")["blocked_clients"], 10)
    sent = bell.enqueue(message())
    waiting.join(10)
    assert [one.message_id for one in taken] == [sent.message_id]
    assert next(consumer) is None  # it has one place, and that is taken: it does not wait
    consumer.ack(taken[0])


def test_rings_that_nobody_hears_do_not_pile_up(bell):
    for _ in range(broker.MOST_RINGS + 5):
        bell.enqueue(message())
    assert bell.client.llen(bell.bell_of("bell")) == broker.MOST_RINGS


def test_a_worker_takes_as_many_messages_as_it_has_places(monkeypatch):
    """What it took beyond that would wait in it while other processes have nothing to do."""
    given = {}
    monkeypatch.setattr(os, "execvpe", lambda file, command, environment: given.update(environment))
    call_command("rundramatiq", threads=7)
    assert given["dramatiq_queue_prefetch"] == "7"
