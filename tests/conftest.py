"""Which database and which Redis the suite runs on, and the fixtures that several parts use.

`--db=postgresql` runs on PostgreSQL with Redis, `--db=sqlite` on a SQLite file without Redis in the
settings. Without the option DATABASE_URL decides, and without that it is SQLite. PostgreSQL and
Redis are private servers unless DATABASE_URL and REDIS_URL name others.
"""

import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from tests import services
from tests.processes import READY, SiteProcess

# Handed from the first process to its xdist workers.
SHARED_REDIS = "SUITE_REDIS_URL"
SHARED_DIRECTORY = "SUITE_DIRECTORY"
# This process's own database on that Redis, whether the settings use it or not.
TEST_REDIS = "SUITE_REDIS_DATABASE"
# Where every Python of the suite finds the watch over what models are given.
STARTUP = Path(__file__).resolve().parent / "startup"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
KEPT_TABLES = {"django_migrations", "django_content_type", "auth_permission"}
NO_CHROMIUM = "there is no Chromium on this machine"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--db", choices=["sqlite", "postgresql"], help="the database to run on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is tried on the other database only."""
    is_postgresql = os.environ.get("DATABASE_URL", "").startswith("postgres")
    here = "postgresql" if is_postgresql else "sqlite"
    named = {item: item.get_closest_marker("database") for item in items}
    left_out = [item for item, mark in named.items() if mark and mark.args[0] != here]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


# --- before Django reads its settings ---------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None and not config.option.collectonly:
        servers = contextlib.ExitStack()
        config.add_cleanup(servers.close)
        start_servers(servers, config.option.db)
    name = worker["workerid"] if worker else "gw0"
    choose_redis_database(name)
    if SHARED_DIRECTORY in os.environ:
        watch_prompts(name)
    # The suite reaches no provider, whatever the shell that starts it holds.
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"):
        os.environ.pop(name, None)
    for name in ("DEMO_MODEL", "SECRET_KEY"):
        os.environ.pop(name, None)
    os.environ["DEBUG"] = "true"
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    # pytest-django sets Django up after this hook, and only where the settings have been read.
    _ = settings.DATABASES


def start_servers(servers: contextlib.ExitStack, chosen: str | None) -> None:
    given = os.environ.get("DATABASE_URL", "")
    chosen = chosen or ("postgresql" if given.startswith("postgres") else "sqlite")
    directory = servers.enter_context(tempfile.TemporaryDirectory(prefix="suite-"))
    os.environ[SHARED_DIRECTORY] = directory
    os.environ[SHARED_REDIS] = os.environ.pop("REDIS_URL", "") or servers.enter_context(
        services.redis()
    )
    if chosen == "sqlite":
        os.environ["DATABASE_URL"] = f"sqlite:///{directory}/site.sqlite3"
        return
    os.environ["REDIS_URL"] = os.environ[SHARED_REDIS]
    if not given.startswith("postgres"):
        os.environ["DATABASE_URL"] = servers.enter_context(services.postgres())


def choose_redis_database(worker: str) -> None:
    # Workers run beside each other; one must not flush or hear another's keys.
    if SHARED_REDIS not in os.environ:
        return
    address = urlsplit(os.environ[SHARED_REDIS])._replace(path=f"/{worker.removeprefix('gw')}")
    os.environ[TEST_REDIS] = address.geturl()
    if "REDIS_URL" in os.environ:
        os.environ["REDIS_URL"] = address.geturl()


def watch_prompts(worker: str) -> None:
    """Have every prompt checked, here and in each process that a test starts."""
    os.environ["UNSOUND_PROMPTS"] = f"{os.environ[SHARED_DIRECTORY]}/unsound-{worker}"
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    paths = dict.fromkeys([str(STARTUP), *others])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    importlib.import_module("tests.startup.sitecustomize")


@pytest.fixture(autouse=True)
def _every_prompt_is_sound() -> Iterator[None]:
    """Fail a test in which a model was given a conversation that no provider would take."""
    yield
    noted = Path(os.environ["UNSOUND_PROMPTS"])
    if noted.exists():
        problems = noted.read_text()
        noted.unlink()
        pytest.fail(f"A model was given an unsound conversation:\n{problems}", pytrace=False)


def pytest_report_header() -> str:
    kind = os.environ.get("DATABASE_URL", "sqlite").split(":", 1)[0]
    return f"database: {kind}, redis: {'yes' if 'REDIS_URL' in os.environ else 'no'}"


# --- the database ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def django_db_modify_db_settings(request: pytest.FixtureRequest) -> None:
    """Give SQLite a test database in a file: connections and processes share it."""
    config = settings.DATABASES["default"]
    if config["ENGINE"].endswith("sqlite3"):
        file = Path(os.environ[SHARED_DIRECTORY]) / "test.sqlite3"
        config.setdefault("TEST", {})["NAME"] = str(file)
        # A test run loses nothing when the machine does: see FORGETFUL for the other database.
        hasty = config["OPTIONS"]["init_command"].replace("synchronous=FULL", "synchronous=OFF")
        config["OPTIONS"]["init_command"] = hasty
    request.getfixturevalue("django_db_modify_db_settings_parallel_suffix")


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session", autouse=True)
def _no_real_models() -> None:
    from agentruntime import llm

    llm.refuse_real_requests()


@pytest.fixture(scope="session", autouse=True)
def _empty_quickly() -> Iterator[None]:
    """Let pytest empty the tables after a test with a DELETE each: they hold a few rows.

    A TRUNCATE of all of them, and all permissions made anew after it, took longer than most tests.
    """
    from django.core.management.commands.flush import Command

    emptied = Command.handle
    Command.handle = lambda command, **options: empty_tables()
    yield
    Command.handle = emptied


def empty_tables() -> None:
    """Delete all rows but those that the migrations made."""
    from django.db import connection, transaction

    from approvals.immutability import unprotected
    from approvals.models import Decision

    tables = ", ".join(
        connection.ops.quote_name(name)
        for name in connection.introspection.django_table_names(only_existing=True)
        if name not in KEPT_TABLES
    )
    # The database refuses to delete decisions.
    passing = unprotected() if Decision.objects.exists() else contextlib.nullcontext()
    with passing, transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # as a TRUNCATE does: not past who still writes
            cursor.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        for table in tables.split(", "):
            cursor.execute(f"DELETE FROM {table}")


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The address of this test's database, for other processes; what they see is committed."""
    from django.db import connection

    config = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{config['NAME']}"
    login = config["USER"] + (f":{config['PASSWORD']}" if config["PASSWORD"] else "")
    return f"postgresql://{login}@{config['HOST']}:{config['PORT'] or 5432}/{config['NAME']}"


@pytest.fixture
def redis_url() -> Iterator[str]:
    """The address of an empty Redis database of this test process, on either database."""
    import redis

    with redis.Redis.from_url(os.environ[TEST_REDIS]) as client:
        client.flushdb()
        yield os.environ[TEST_REDIS]
        client.flushdb()


# --- other processes -------------------------------------------------------------------------


@pytest.fixture
def process_environment(database_url: str, redis_url: str) -> Callable[..., dict[str, str]]:
    """Gives the environment in which a process works on this test's database.

    `redis` says whether it has a Redis; by default it has one when the settings of the suite do.
    """

    def environment(redis: bool | None = None, **more: str) -> dict[str, str]:
        wanted = "REDIS_URL" in os.environ if redis is None else redis
        variables = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
        # Leave given to the thread of a browser test is not for the processes beside it.
        variables.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)
        variables["DATABASE_URL"] = database_url
        return variables | ({"REDIS_URL": redis_url} if wanted else {}) | more

    return environment


@pytest.fixture
def site_process(
    process_environment: Callable[..., dict[str, str]], tmp_path: Path
) -> Iterator[Callable[..., SiteProcess]]:
    """Starts `manage.py COMMAND...` beside the test; all of them are gone when the test ends."""
    started: list[SiteProcess] = []

    def start(
        *command: str, redis: bool | None = None, env: dict[str, str] | None = None
    ) -> SiteProcess:
        log = tmp_path / f"process-{len(started)}.log"
        process = SiteProcess(list(command), process_environment(redis, **(env or {})), log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def worker_process(site_process: Callable[..., SiteProcess]) -> Callable[..., SiteProcess]:
    """Starts `manage.py rundramatiq` and returns when it takes work; `.kill()` is kill -9."""

    def start(
        *arguments: str,
        processes: int = 1,
        threads: int = 4,
        redis: bool | None = None,
        env: dict[str, str] | None = None,
    ) -> SiteProcess:
        sizes = ["--processes", str(processes), "--threads", str(threads)]
        worker = site_process("rundramatiq", *sizes, *arguments, redis=redis, env=env)
        worker.wait_for(READY, times=processes)
        return worker

    return start


# --- the browser -----------------------------------------------------------------------------


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("browser") and find_chromium() is None:
        leave_out_or_fail()
    forget_messages()


def forget_messages() -> None:
    """Empty the broker of this process: what earlier tests sent is about runs that are gone."""
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    broker = dramatiq.get_broker()
    if isinstance(broker, StubBroker):
        broker.flush_all()


def leave_out_or_fail() -> None:
    # A skipped page test is fine on a laptop; a pipeline that skips it has checked nothing.
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(NO_CHROMIUM, pytrace=False)
    pytest.skip(NO_CHROMIUM)


@pytest.fixture(autouse=True)
def _browser_beside_the_database(request: pytest.FixtureRequest) -> Iterator[None]:
    # The browser's event loop runs in the thread that also reads the database.
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("browser"):
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where the system's Chromium is."""
    path = find_chromium()
    if path is None:
        leave_out_or_fail()
    return str(path)
