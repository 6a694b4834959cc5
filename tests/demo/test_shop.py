"""The payment gateway: money moves once per key, whoever asks and however they die."""

import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from agentruntime.demo.journal import Journal
from agentruntime.demo.shop import (
    ORDERS,
    Gateway,
    KeyReused,
    OrderNotFound,
    PaymentRefused,
    find_order,
    gateway,
    money,
)

TEAPOT = ORDERS["1042"]


@pytest.fixture
def ledger(tmp_path):
    return Journal(tmp_path / "shop" / "payments.jsonl")


def test_order_1042_is_a_teapot_that_was_delivered():
    order = find_order(" #1042 ")

    assert (order.item, order.amount, order.status) == (
        "Teapot, stoneware",
        Decimal("49.90"),
        "delivered",
    )


def test_unknown_order_is_an_error_that_names_it():
    with pytest.raises(OrderNotFound, match="no order 9999"):
        find_order("9999")


def test_same_key_and_request_gets_the_stored_answer_and_moves_no_money(ledger):
    first = Gateway(ledger).refund(TEAPOT, Decimal("49.90"), "k1")
    again = Gateway(ledger).refund(TEAPOT, Decimal("49.9"), "k1")

    assert again == first
    assert len(Gateway(ledger).moved("refund")) == 1


def test_a_repeated_request_leaves_a_line_of_its_own(ledger):
    first = Gateway(ledger).charge("2001", Decimal("49.00"), "k1")
    Gateway(ledger).charge("2001", Decimal("49.00"), "k1")

    kinds = [(entry["kind"], entry.get("of")) for entry in ledger.entries()]
    assert kinds == [("charge", None), ("repeat", first["id"])]


@pytest.mark.parametrize(
    "other",
    [
        lambda shop: shop.refund(TEAPOT, Decimal("10.00"), "k1"),
        lambda shop: shop.refund(ORDERS["1041"], Decimal("49.90"), "k1"),
        lambda shop: shop.charge("1042", Decimal("49.90"), "k1"),
    ],
    ids=["amount", "order", "kind"],
)
def test_same_key_with_another_request_is_an_error_and_moves_no_money(ledger, other):
    shop = Gateway(ledger)
    shop.refund(TEAPOT, Decimal("49.90"), "k1")

    with pytest.raises(KeyReused):
        other(shop)

    assert len(ledger.entries()) == 1


def test_other_keys_are_other_payments(ledger):
    shop = Gateway(ledger)
    shop.refund(TEAPOT, Decimal("20.00"), "k1")
    shop.refund(TEAPOT, Decimal("20.00"), "k2")

    assert len(shop.moved("refund", "1042")) == 2
    assert shop.moved("refund", "1041") == []


def test_a_payment_without_a_key_is_refused(ledger):
    with pytest.raises(PaymentRefused, match="key"):
        Gateway(ledger).refund(TEAPOT, Decimal("1.00"), "")


def test_a_closed_card_takes_no_refund(ledger):
    with pytest.raises(PaymentRefused, match="closed"):
        Gateway(ledger).refund(ORDERS["1050"], Decimal("56.00"), "k1")

    assert ledger.entries() == []


@pytest.mark.parametrize("amount", ["0", "-1", "1.001", "NaN", "Infinity", "1E+30"])
def test_what_is_no_sum_of_money_is_refused(ledger, amount):
    with pytest.raises(PaymentRefused):
        Gateway(ledger).charge("2001", Decimal(amount), "k1")

    assert ledger.entries() == []


@pytest.mark.parametrize("amount", ["49.9", "49.90", "49.900"])
def test_money_is_whole_cents(amount):
    assert str(money(Decimal(amount))) == "49.90"


def test_parallel_threads_with_one_key_move_money_once(ledger):
    def pay(_):
        return Gateway(ledger).refund(TEAPOT, Decimal("49.90"), "k1")["id"]

    with ThreadPoolExecutor(16) as threads:
        answers = set(threads.map(pay, range(64)))

    assert len(answers) == 1
    assert len(Gateway(ledger).moved("refund")) == 1
    assert len(ledger.entries()) == 64


def pay_all(path, keys):
    for key in keys:
        Gateway(Journal(path)).charge("2001", Decimal("49.00"), key)


def test_parallel_processes_move_money_once_per_key(ledger):
    keys = [f"k{number}" for number in range(10)]
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=pay_all, args=(ledger.path, keys)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)

    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sorted(entry["key"] for entry in Gateway(ledger).moved("charge")) == sorted(keys)
    assert len(ledger.entries()) == 40


def pay_and_die(path):
    with Journal(path).locked() as page:
        page.append(kind="charge", order_id="2001", amount="1.00", key="k1", answer={"id": "x"})
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_writer_leaves_its_line_and_no_lock(ledger):
    worker = multiprocessing.get_context("spawn").Process(target=pay_and_die, args=(ledger.path,))
    worker.start()
    worker.join(30)

    Gateway(ledger).charge("2001", Decimal("1.00"), "k2")

    assert worker.exitcode == -signal.SIGKILL
    assert [entry["key"] for entry in Gateway(ledger).moved("charge")] == ["k1", "k2"]


def test_a_line_that_was_torn_by_a_kill_does_not_count_and_hurts_nobody(ledger):
    ledger.append(kind="charge", key="k1")
    with ledger.path.open("a") as file:
        file.write('{"kind": "charge", "key": "to')

    assert [entry["key"] for entry in ledger.entries()] == ["k1"]
    ledger.append(kind="charge", key="k2")
    lines = ledger.path.read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["k1", "k2"]


def test_append_once_writes_one_line_per_key(ledger):
    first = ledger.append_once("k1", text="a")
    again = ledger.append_once("k1", text="b")

    assert again == first
    assert len(ledger.entries()) == 1


def test_the_ledger_lies_where_the_setting_says(settings, tmp_path):
    settings.DEMO_DIR = tmp_path / "elsewhere"

    gateway().charge("2001", Decimal("1.00"), "k1")

    assert (tmp_path / "elsewhere" / "payments.jsonl").exists()
