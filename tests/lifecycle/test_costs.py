"""What a step costs in counts, which no machine changes: one statement that is one transaction, so
one flush of the log, and what it writes to the log.
"""

import json

import pytest
from django.db import connection, transaction

from agentruntime.graph import END, START, Message, State, StateGraph, register
from agentruntime.graph.registry import unregister
from agentruntime.lifecycle import start_run
from agentruntime.lifecycle.loop import execute
from agentruntime.models import Checkpoint, Run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="The statement is PostgreSQL's."),
]
WAL_BYTES = 3_000
# Beside its steps: start (the run, what it adds) and claim; and the two looks of this test, to
# which the three of its count come.
RUN_STATEMENTS, RUN_TRANSACTIONS = 5, 7


class Count(State):
    left: int = 1
    pad: str = "." * 950


@pytest.fixture
def chain():
    graph = StateGraph(Count)
    graph.add_node(
        "count", lambda state: {"messages": [Message.user("hi")], "left": state.left - 1}
    )
    graph.add_edge(START, "count")
    graph.add_conditional_edges(
        "count", lambda state: "count" if state.left else END, {"count": "count", END: END}
    )
    register("costs", graph)
    yield "costs"
    unregister("costs")


class Watch:
    """Counts statements, and asks the server what each step writes to its log."""

    def __init__(self):
        self.statements, self.wal = 0, []

    def __call__(self, run, statement, values, many, context):
        if "INSERT INTO agentruntime_checkpoint" in statement:
            self.wal.append(wal_of(run, statement, values, many, context))
        self.statements += "SAVEPOINT" not in statement  # those are of `wal_of`
        return run(statement, values, many, context)


def wal_of(run, statement, values, many, context):
    """The bytes that a statement would write; undone."""
    with transaction.atomic(durable=not connection.in_atomic_block):
        run(f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) {statement}", values, many, context)
        (plan,) = context["cursor"].fetchone()
        transaction.set_rollback(True)
    plan = plan if isinstance(plan, list) else json.loads(plan)
    return sum(
        part["WAL Bytes"] for part in plan[0]["Plan"]["Plans"] if part["Node Type"] == "ModifyTable"
    )


def commits():
    """The transactions of this database that its connections have told of."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
        return cursor.fetchone()[0]


def done(chain, steps):
    run = start_run(graph=chain, input={"messages": ["go"], "left": steps})
    execute(run.pk)
    assert Run.objects.get(pk=run.pk).status == "completed"
    assert Checkpoint.objects.filter(run=run).count() == steps + 1


def transactions(chain, steps):
    before = commits()
    done(chain, steps)
    return commits() - before


def costs(chain, steps):
    """(statements, transactions, bytes of each step's statement) of a run, its start included."""
    watch = Watch()
    # Another connection may tell of its own in between: the least of several is this run's.
    took = min(transactions(chain, steps) for _ in range(4))
    with connection.execute_wrapper(watch):
        done(chain, steps)
    return watch.statements, took, watch.wal


def test_a_step_is_one_statement_one_transaction_and_so_many_bytes(chain, settings):
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}
    costs(chain, 2)
    few, many = costs(chain, 5), costs(chain, 15)
    assert many[0] - few[0] == 10
    assert many[1] - few[1] == 10
    assert sorted(many[2])[7] <= WAL_BYTES
    assert few[0] - 5 <= RUN_STATEMENTS
    assert few[1] - 5 <= RUN_TRANSACTIONS
