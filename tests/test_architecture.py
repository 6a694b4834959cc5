"""Who may import whom: the table as data, checked against the syntax tree of every module.

A part may import the parts below it, nothing above it, and of its own row only what `BESIDE` names.
A module that belongs to no part fails, so a new file is a decision about its place.
"""

import ast
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agentruntime", "approvals", "config")

# From the top down. A part is a module or a package with all it contains.
ROWS: list[set[str]] = [
    {"config"},
    {"approvals.apps", "approvals.urls", "approvals.routing"},
    {
        "approvals.admin",
        "approvals.checks",
        "approvals.consumers",
        "approvals.management",
        "approvals.views",
    },
    {
        "approvals.bulk",
        "approvals.claims",
        "approvals.due",
        "approvals.export",
        "approvals.filters",
        "approvals.forms",
        "approvals.health",
        "approvals.invariants",
        "approvals.live",
        "approvals.parsers",
        "approvals.receivers",
        "approvals.serializers",
        "approvals.story",
    },
    {"approvals.decide", "approvals.notifications", "approvals.templatetags", "approvals.timeline"},
    {
        "approvals.edits",
        "approvals.figures",
        "approvals.history",
        "approvals.queue",
        "approvals.record",
        "approvals.snapshots",
        "approvals.standing",
    },
    {"approvals.masking", "approvals.permissions", "approvals.visible"},
    {"approvals.models", "approvals.migrations"},
    {"approvals.conf", "approvals.exceptions", "approvals.immutability", "approvals.signals"},
    {"approvals"},
    {
        "agentruntime.apps",
        "agentruntime.demo.apps",
        "agentruntime.routing",
        "agentruntime.urls",
        "agentruntime.worker",
    },
    {
        "agentruntime.actors",
        "agentruntime.admin",
        "agentruntime.callback_views",
        "agentruntime.checks",
        "agentruntime.consumers",
        "agentruntime.demo.management",
        "agentruntime.health",
        "agentruntime.management",
        "agentruntime.pages",
        "agentruntime.token_views",
        "agentruntime.views",
        "agentruntime.webhook_views",
    },
    {
        "agentruntime.event_views",
        "agentruntime.middleware",
        "agentruntime.socket_gate",
        "agentruntime.sockets",
    },
    {"agentruntime.api_docs", "agentruntime.streams"},
    {"agentruntime.hub"},
    {
        "agentruntime.exceptions_http",
        "agentruntime.feeds",
        "agentruntime.filters",
        "agentruntime.first_pages",
        "agentruntime.pagination",
        "agentruntime.permissions",
        "agentruntime.serializers",
        "agentruntime.throttles",
    },
    {"agentruntime.credentials"},
    {"agentruntime.tokens"},
    {"agentruntime.events", "agentruntime.logs", "agentruntime.metrics", "agentruntime.webhooks"},
    {"agentruntime.outbound", "agentruntime.stored_events"},
    {"agentruntime.demo"},
    {"agentruntime.invariants"},
    {"agentruntime.lifecycle"},
    {
        "agentruntime.broker",
        "agentruntime.cache",
        "agentruntime.dispatch",
        "agentruntime.executors",
        "agentruntime.llm",
        "agentruntime.mcp",
    },
    {"agentruntime.models", "agentruntime.migrations"},
    {
        "agentruntime.bound",
        "agentruntime.conf",
        "agentruntime.crash",
        "agentruntime.event_loops",
        "agentruntime.schemas",
        "agentruntime.signals",
    },
    {"agentruntime.graph"},
    {"agentruntime.exceptions"},
    {"agentruntime"},
]

# Neighbours of one row that may know each other, with the reason.
BESIDE: dict[tuple[str, str], str] = {
    ("agentruntime.admin", "agentruntime.pages"): "events and questions are told in the same words",
    ("agentruntime.dispatch", "agentruntime.broker"): "what is sent is sent through the broker",
    ("agentruntime.migrations", "agentruntime.models"): "a migration names fields and functions",
    ("approvals.migrations", "approvals.models"): "the same",
}

# Parts that may import less of the project than what lies below them.
ONLY: dict[str, set[str]] = {
    "agentruntime.demo": {"agentruntime.graph", "agentruntime.mcp"},
    "agentruntime.llm": {"agentruntime.graph", "agentruntime.exceptions"},
}
# What is stored speaks of values, never of how a graph is put together.
OF_THE_GRAPH_MODELS_IMPORT = {"agentruntime.graph.messages", "agentruntime.graph.json_values"}
OF_AGENTRUNTIME_APPROVALS_IMPORT = {
    "agentruntime.sockets",  # what bounds a socket, and how it ends
    "agentruntime.health",  # what waits is told in one place
    "agentruntime.hub",  # hints reach all processes in one way
    "agentruntime.feeds",  # the few threads in which sockets read
    "agentruntime.events",
    "agentruntime.credentials",  # who stands behind a websocket is looked up in one place
    "agentruntime.first_pages",  # lists of the admin end at the same row
    "agentruntime.pagination",  # what a made-up cursor is answered with, too
    "agentruntime.outbound",  # the guard of calls to foreign addresses is not written twice
    "agentruntime.stored_events",  # an event looks the same on every socket
    "agentruntime.crash",  # the point between sending and marking is named with the others
    "agentruntime.conf",  # which fields are secret, and what a token may do, is said once
    "agentruntime.exceptions",
    "agentruntime.graph",
    "agentruntime.invariants",  # what must be true of approvals is asked with the rest
    "agentruntime.lifecycle",
    "agentruntime.models",
    "agentruntime.signals",
}

# Parts that stay free of frameworks: beside the standard library they may import these.
OUTSIDE: dict[str, set[str]] = {
    "agentruntime.exceptions": set(),
    "agentruntime.graph": {"pydantic", "pydantic_core"},
    "agentruntime.llm": {"pydantic_core", "pydantic_ai", "httpx2", "openai", "anthropic"},
}

# Libraries that need not be installed; they are imported where they are used.
OPTIONAL = {
    "anthropic",
    "anyio",
    "httpx2",
    "jsonschema",
    "mcp",
    "mcp_types",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "psycopg",
    "referencing",
}
# Functions that Django calls at its own time.
LATE = {"ready"}


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    function: str | None


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {
        module_name(file): file
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
    }


def part_of(module: str) -> str | None:
    """The longest entry of the table that holds `module`; a bare package holds only itself."""
    parts = {part for row in ROWS for part in row}
    pieces = module.split(".")
    for length in range(len(pieces), 0, -1):
        part = ".".join(pieces[:length])
        if part in parts and (part not in {"agentruntime", "approvals"} or part == module):
            return part
    return None


def row_of(part: str) -> int:
    return next(index for index, row in enumerate(ROWS) if part in row)


def imports_of(module: str) -> list[Import]:
    file = modules()[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, function: str | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        for target in targets(node, package):
            found.append(Import(target, node.lineno, function))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(file.read_text(encoding="utf-8")), None)
    return found


def targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    # `from package import name` names a module where there is one, else something inside.
    return [
        f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base
        for alias in node.names
    ]


def within_project(target: str) -> bool:
    return target.split(".")[0] in PACKAGES


def objection(part: str, target: str) -> str | None:
    """Why a module of `part` may not import `target`, or None."""
    other = part_of(target)
    if other is None:
        return "has no place in the table"
    if other == part or (part, other) in BESIDE:
        return None
    if row_of(other) <= row_of(part):
        return "does not lie below"
    if part in ONLY and other not in ONLY[part]:
        return f"is not one of {sorted(ONLY[part])}"
    if part == "agentruntime.models" and other == "agentruntime.graph":
        allowed = target in OF_THE_GRAPH_MODELS_IMPORT
        return None if allowed else f"is not one of {sorted(OF_THE_GRAPH_MODELS_IMPORT)}"
    of_the_runtime = part.split(".")[0] == "approvals" and other.split(".")[0] == "agentruntime"
    if of_the_runtime and other not in OF_AGENTRUNTIME_APPROVALS_IMPORT:
        return f"is not one of {sorted(OF_AGENTRUNTIME_APPROVALS_IMPORT)}"
    return None


def test_every_module_has_a_place_in_the_table():
    assert [module for module in modules() if part_of(module) is None] == []


@pytest.mark.parametrize("module", modules())
def test_imports_point_downwards(module):
    part = part_of(module)
    if part is None:
        pytest.fail(f"{module} has no place in the table", pytrace=False)
    broken = [
        f"{module}:{found.line} imports {found.target}, which {why}"
        for found in imports_of(module)
        # An app's `ready()` is where the parts are put together.
        if within_project(found.target) and found.function not in LATE
        if (why := objection(part, found.target))
    ]
    assert broken == []


@pytest.mark.parametrize("module", modules())
def test_no_import_hides_in_a_function(module):
    hidden = [
        f"{module}:{found.line} imports {found.target} inside {found.function}()"
        for found in imports_of(module)
        if found.function not in {None, *LATE} and found.target.split(".")[0] not in OPTIONAL
    ]
    assert hidden == []


@pytest.mark.parametrize("module", [name for name in modules() if part_of(name) in OUTSIDE])
def test_the_core_is_free_of_frameworks(module):
    allowed = OUTSIDE[part_of(module)]
    foreign = [
        f"{module}:{found.line} imports {found.target}"
        for found in imports_of(module)
        if not within_project(found.target)
        if found.target.split(".")[0] not in allowed | set(sys.stdlib_module_names)
    ]
    assert foreign == []


def test_agentruntime_never_imports_approvals():
    named = [
        f"{module}:{found.line}"
        for module in modules()
        if module.split(".")[0] == "agentruntime"
        for found in imports_of(module)
        if found.target.split(".")[0] == "approvals"
    ]
    assert named == []


def test_a_worker_loads_no_page_and_the_site_loads_them_all():
    """What `django.setup()` loads, every worker process holds."""
    told = subprocess.run(
        [sys.executable, "-c", SETUP],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["[]", "True", "[]"]


SETUP = """
import sys
import django
django.setup()
pages = ("agentruntime.admin", "approvals.admin", "agentruntime.views", "rest_framework.views")
print([name for name in pages if name in sys.modules])
import config.urls
from django.contrib import admin
from django.core import checks
print({"Run", "Approval"} <= {model.__name__ for model in admin.site._registry})
print(checks.run_checks(tags=["admin"]))
"""
