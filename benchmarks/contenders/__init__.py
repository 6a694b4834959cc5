"""What is measured side by side: the runtime, the floors under it, and its peers.

A contender is one file with one class `Contender` of the methods below; the table `CONTENDERS`
says where it is and what it needs. A peer's file imports the peer, so it is imported only in a
process of the peers' interpreter.

Every contender keeps the same promise: when a step, a tool's result, a pause or an answer is said
to be done it is committed in PostgreSQL with fsync on. A *step* reads nothing, does no work, adds
one message to the thread's history and one to a counter in its state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ALL = frozenset({"step", "many", "grow", "tools", "answer", "cold"})


@dataclass(frozen=True)
class Entry:
    """Where a contender is (`module` in this package), what it is, which benches it can run.

    `kind` is `floor`, `project` or `peer`; peers run in an interpreter of their own. `imports`
    is what an application of it imports, `distributions` whose versions are reported.
    """

    module: str
    title: str
    kind: str
    benches: frozenset[str] = ALL
    imports: str = ""
    distributions: tuple[str, ...] = ()


DJANGO = ("Django", "psycopg")
IMPORT_DJANGO = (
    "import django; from django.conf import settings; settings.configure(); django.setup(); "
    "import django.db.models, django.db.backends.postgresql.base"
)
# What a new Django project has installed; the runtime is measured against it.
IMPORT_SITE = """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}},
    INSTALLED_APPS=["django.contrib." + name for name in (
        "admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")] + APPS,
    USE_TZ=True,
    REDIS_URL="redis://127.0.0.1:1/0",
)
django.setup()
import django.db.backends.postgresql.base, dramatiq.brokers.redis
"""
IMPORT_BROKER = "APPS = []" + IMPORT_SITE
IMPORT_PROJECT = 'APPS = ["agentruntime", "approvals"]' + IMPORT_SITE

CONTENDERS = {
    "raw": Entry(
        "raw",
        "raw psycopg, 1 statement",
        "floor",
        imports="import psycopg",
        distributions=("psycopg",),
    ),
    "raw_group": Entry("raw_group", "raw psycopg, group commit", "floor", frozenset({"many"})),
    "django_cursor": Entry(
        "django_cursor", "Django cursor, 1 prepared statement", "floor", distributions=DJANGO
    ),
    "django_group": Entry(
        "django_group", "Django cursor, group commit", "floor", frozenset({"many"})
    ),
    "django_orm": Entry(
        "django_orm", "Django ORM as first written", "floor", imports=IMPORT_DJANGO
    ),
    "django_dramatiq": Entry(
        "",
        "Django + Dramatiq",
        "floor",
        frozenset(),
        imports=IMPORT_BROKER,
        distributions=("dramatiq", "redis"),
    ),
    "project": Entry(
        "project",
        "this runtime",
        "project",
        ALL | {"rest", "waiting", "faults", "retail"},
        imports=IMPORT_PROJECT,
        distributions=DJANGO,
    ),
    "langgraph": Entry(
        "peer_langgraph",
        "LangGraph AsyncPostgresSaver",
        "peer",
        imports="import langgraph.graph, langgraph.checkpoint.postgres.aio",
        distributions=("langgraph", "langgraph-checkpoint-postgres"),
    ),
    "langgraph_delta": Entry("peer_langgraph_delta", "LangGraph + DeltaChannel (beta)", "peer"),
    "dbos": Entry(
        "peer_dbos", "DBOS, sync steps", "peer", imports="import dbos", distributions=("dbos",)
    ),
    "tenxgraph": Entry(
        "peer_tenxgraph",
        "10xGraph PgCheckpointer",
        "peer",
        imports="import tenxgraph.core.graph, tenxgraph.storage.checkpointer",
        distributions=("10xgraph",),
    ),
}


@dataclass
class Place:
    """Where a contender works: the services, its number among the processes of a bench, how many
    threads (or tasks, or pooled connections) it may use at once, and the bench's method."""

    dsn: str
    redis_url: str = ""
    process: int = 0
    threads: int = 16
    method: str = ""


class Contender:
    """The interface. Times are seconds; `thread` is any short text, new for every run.

    A method of a bench that the contender does not take part in may be missing.
    """

    def __init__(self, place: Place) -> None:
        self.place = place

    def migrate(self) -> None:
        """Create the schema in an empty database."""

    def load(self) -> None:
        """Import and configure what an application of it does before it can do anything."""

    def open(self) -> None:
        """Open pools and build graphs; called once in a process, before anything is timed."""

    def close(self) -> None:
        """Close what `open` opened."""

    def verify(self) -> list[str]:
        """What is stored after a bench and cannot have happened, in sentences."""
        return []

    def step(self, thread: str, steps: int) -> list[float]:
        """Run `steps` steps in a row on a new thread.

        Returns the seconds of each: from a node's entry to the next node's, and for the last one
        to the end of the run.
        """
        raise NotImplementedError

    def statements(self, steps: int) -> float | None:
        """Statements per step in a run of `steps`; None where nobody counts."""
        return None

    def many(self, threads: list[str], steps: int) -> dict[str, Any] | None:
        """Run all the threads at once, `steps` steps each; return when all are done.

        Where the work is done in other processes, returns what it took there: {"cpu_s", and
        "rss_kib", the most that one of them has held}.
        """
        raise NotImplementedError

    def grow(self, thread: str, have: int, upto: int, size: int) -> list[float]:
        """Append messages of `size` bytes until the thread, which has `have`, has `upto`.

        In turns of 10: one message from the user, nine steps of one message. A turn begins by
        loading the history. Returns the seconds per message of each turn.
        """
        raise NotImplementedError

    def tools(self, thread: str, count: int, seconds: float, mode: str) -> float:
        """One turn of `count` parallel tools that each sleep (`asyncio.sleep` if `mode` is
        `async`, `time.sleep` if `sync`), their results recorded.

        Returns the seconds from the model's reply to the model's next call.
        """
        raise NotImplementedError

    def pause(self, thread: str, messages: int, size: int) -> None:
        """Leave a thread of `messages` messages of `size` bytes waiting for a person's answer to
        the question that stands before a tool."""
        raise NotImplementedError

    def answer(self, thread: str) -> dict[str, float]:
        """Answer that question. Returns {"tool_at", "to_tool", "to_done"}: the `perf_counter` at
        which the tool's work ran, and the seconds to it and to the durable end of the run."""
        raise NotImplementedError

    def rest(self, thread: str) -> dict[str, float]:
        """As `answer`, through the HTTP API of one process to a tool in another."""
        raise NotImplementedError

    def waiting(self, runs: int, seconds: float, workers: int, threads: int) -> dict[str, float]:
        """Many runs at once that each wait in an async model call.

        Returns {"done_s", "connections" (the most seen at once), "peak_kib" (of one process)}.
        """
        raise NotImplementedError
