"""Every route, method and kind of caller: the right status, and an unchanged database.

The routes come from the URL configuration; one without an entry here fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.apps import apps
from django.urls import URLPattern, URLResolver, get_resolver

from agentruntime.lifecycle import start_run
from agentruntime.models import Interrupt, Run, Thread, WebhookEndpoint
from agentruntime.tokens import create_token, live_tokens

pytestmark = pytest.mark.django_db(transaction=True)
METHODS = ("get", "post", "put", "patch", "delete", "head", "options")

# Per route: the methods that it has. `kind` says what a caller sees who has no part in it:
# "object" is not found, "list" is empty, "own" concerns only the caller, "open" is for everybody.
ROUTES: dict[str, tuple[str, set[str]]] = {
    "api/v1/threads/": ("list", {"get", "post"}),
    "api/v1/threads/<uuid:pk>/": ("object", {"get", "delete"}),
    "api/v1/threads/<uuid:pk>/messages/": ("object", {"get"}),
    "api/v1/threads/<uuid:pk>/checkpoints/": ("object", {"get"}),
    "api/v1/threads/<uuid:pk>/checkpoints/<int:version>/": ("object", {"get"}),
    "api/v1/threads/<uuid:pk>/tool-executions/": ("object", {"get"}),
    "api/v1/threads/<uuid:pk>/events/": ("object", {"get"}),
    "api/v1/threads/<uuid:pk>/runs/": ("object", {"post"}),
    "api/v1/threads/<uuid:pk>/fork/": ("object", {"post"}),
    "api/v1/runs/": ("list", {"get"}),
    "api/v1/runs/<uuid:pk>/": ("object", {"get"}),
    "api/v1/runs/<uuid:pk>/events/": ("object", {"get"}),
    "api/v1/runs/<uuid:pk>/stop/": ("object", {"post"}),
    "api/v1/runs/<uuid:pk>/retry/": ("object", {"post"}),
    "api/v1/interrupts/": ("list", {"get"}),
    "api/v1/interrupts/<uuid:pk>/": ("object", {"get"}),
    "api/v1/interrupts/<uuid:pk>/resume/": ("object", {"post"}),
    "api/v1/approvals/": ("list", {"get"}),
    "api/v1/approvals/<uuid:pk>/": ("approval", {"get"}),
    "api/v1/approvals/<uuid:pk>/approve/": ("approval", {"post"}),
    "api/v1/approvals/<uuid:pk>/decline/": ("approval", {"post"}),
    "api/v1/approvals/<uuid:pk>/claim/": ("approval", {"post"}),
    "api/v1/approvals/<uuid:pk>/release/": ("approval", {"post"}),
    "api/v1/webhooks/": ("list", {"get", "post"}),
    "api/v1/webhooks/<uuid:pk>/": ("private", {"get", "delete"}),
    "api/v1/webhooks/<uuid:pk>/rotate/": ("private", {"post"}),
    "api/v1/webhooks/<uuid:pk>/deliveries/": ("private", {"get"}),
    "api/v1/tokens/": ("no-token", {"get", "post"}),
    "api/v1/tokens/<str:token_id>/": ("no-token-object", {"delete"}),
    "api/v1/tokens/revoke/": ("only-token", {"post"}),
    "api/v1/callbacks/<str:token>/": ("open", {"post"}),  # the address is the permission
    "api/schema/": ("open", {"get"}),
    "api/docs/": ("open", {"get"}),
    "health/^live/?$": ("open", {"get"}),
    "health/^ready/?$": ("open", {"get"}),
    "accounts/login/": ("open", {"get", "post"}),
    "accounts/logout/": ("open", {"post"}),
}
# Parts with tests of their own: all of the admin asks for a member of staff, the page for a login.
PAGES = {"admin/": "admin", "": "page"}
BODIES: dict[str, Any] = {
    "api/v1/threads/": {"title": "new"},
    "api/v1/threads/<uuid:pk>/runs/": {"graph": "support", "input": "hello"},
    "api/v1/threads/<uuid:pk>/fork/": {"version": 1},
    "api/v1/interrupts/<uuid:pk>/resume/": {"value": "yes"},
    "api/v1/webhooks/": {"url": "https://example.org/hook", "kinds": ["run.completed"]},
    "api/v1/tokens/": {"scopes": ["read"]},
}


def routes(patterns: Any = None, prefix: str = "") -> Iterator[str]:
    """Every address of the site as the URL configuration writes it."""
    for one in patterns if patterns is not None else get_resolver().url_patterns:
        place = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, place)
        elif isinstance(one, URLPattern):
            yield place


def kind_of(route: str) -> str | None:
    if route in ROUTES:
        return ROUTES[route][0]
    if route.startswith("admin/"):
        return "admin"
    return "page" if not route.startswith(("api/", "health/", "accounts/", "ws/")) else None


def test_every_route_has_an_entry():
    assert [route for route in routes() if kind_of(route) is None] == []
    assert set(ROUTES) - set(routes()) == set()


@dataclass
class World:
    """What ann of the red tenant has, and the callers that want it."""

    ids: dict[str, Any]
    clients: dict[str, Any]


@pytest.fixture
def world(runtime, person, api, work, asking, shop, client) -> World:
    runtime(TENANT_OF="tests.edges.tenants.by_name")
    ann = person("ann@red")
    person("boss@red", is_superuser=True, is_staff=True)
    thread = Thread.objects.create(user=ann, tenant="red")
    question = start_run(graph=asking, input="tea", thread_id=thread.pk, user=ann, tenant="red")
    work(question.pk)
    refund = start_run(
        graph="support", input="Order 1042 arrived broken, please refund it", user=ann, tenant="red"
    )
    work(refund.pk)
    approval = apps.get_model("approvals", "Approval").objects.get()
    hook = WebhookEndpoint.objects.create(
        user=ann, tenant="red", url="https://example.org/", kinds=["run.completed"]
    )
    create_token(ann, ["read"])
    every = ("agentruntime.view_thread", "agentruntime.operate_run")
    clients = {
        "anonymous": api(),
        "a stranger of the tenant": api(person("sam@red")),
        "another tenant with every right": api(
            person("tom@blue", *every, is_staff=True, is_superuser=True)
        ),
        "a reader of the tenant": api(person("rea@red", "agentruntime.view_thread")),
        "a token that decides": api(ann, ("decide",)),
        "a token that reads": api(ann, ("read",)),
        "a token of another tenant": api(person("zoe@blue"), ("read", "run")),
    }
    return World(
        ids={
            "threads": thread.pk,
            "runs": question.pk,
            "interrupts": Interrupt.objects.get(run=question).pk,
            "approvals": approval.pk,
            "webhooks": hook.pk,
            "tokens": live_tokens(ann).first().digest[:32],
        },
        clients=clients,
    )


def address(route: str, ids: dict[str, Any]) -> str:
    noun = route.split("/")[2] if route.startswith("api/v1/") else ""
    place = route.replace("<uuid:pk>", str(ids.get(noun, "")))
    place = place.replace("<int:version>", "1").replace("<str:token_id>", str(ids["tokens"]))
    return "/" + place.replace("^", "").replace("/?$", "")


def snapshot() -> dict[str, list[Any]]:
    """All rows of both apps, the counters of rates and what a login touches left out."""
    models = [
        model
        for app in ("agentruntime", "approvals", "knox")
        for model in apps.get_app_config(app).get_models()
        if model.__name__ != "RateWindow"
    ]
    return {
        model.__name__: sorted(map(repr, model._base_manager.values_list())) for model in models
    }


READING = ("get", "head", "options")
OUTSIDERS = {
    "anonymous",
    "a stranger of the tenant",
    "another tenant with every right",
    "a token of another tenant",
}
SCOPES = {
    "a token that decides": {"decide"},
    "a token that reads": {"read"},
    "a token of another tenant": {"read", "run"},
}


def right_statuses(route: str, caller: str, method: str) -> set[int]:
    """What each caller who is not ann herself must be told."""
    kind, methods = ROUTES[route]
    token = caller in SCOPES
    if caller == "anonymous" or token == kind.startswith("no-token") != (kind == "only-token"):
        return {401}
    if kind == "only-token":
        return {401} if not token else {200, 403, 405}
    needed = "read" if method in READING else "decide" if "approvals" in route else "run"
    if token and needed not in SCOPES[caller]:
        return {403}
    if method not in {*methods, "head", "options"} or (method == "head" and "get" not in methods):
        return {405}
    if method == "options":
        return {200}
    if kind == "list" or kind == "no-token":
        return {200, 201}
    if caller in OUTSIDERS:
        return {404}
    if caller == "a reader of the tenant":
        return {200 if method in READING else 403} if kind == "object" else {404}
    # What is left are ann's own tokens: she sees hers, and decides nothing that she asked for.
    return {200} if method in READING else {200 if "release" in route else 403, 400}


def call(client: Any, method: str, route: str, ids: dict[str, Any]) -> Any:
    if method in ("get", "head"):
        return getattr(client, method)(address(route, ids))
    return getattr(client, method)(address(route, ids), BODIES.get(route, {}), format="json")


def makes_something(route: str, method: str, status: int) -> bool:
    """Whether this rightly adds something of the caller's own."""
    return method == "post" and ROUTES[route][0] in ("list", "no-token") and status == 201


@pytest.mark.parametrize("route", [one for one, (kind, _) in ROUTES.items() if kind != "open"])
def test_nobody_gets_what_is_not_theirs(world, route):
    secret = {str(ident) for ident in world.ids.values()}
    for caller, client in world.clients.items():
        for method in METHODS:
            if ROUTES[route][0] == "only-token" and method == "post" and caller in SCOPES:
                continue  # revokes itself, which the tests of tokens look at
            before = snapshot()
            answer = call(client, method, route, world.ids)
            where = f"{caller}: {method.upper()} {route} -> {answer.status_code}"
            assert answer.status_code in right_statuses(route, caller, method), where
            if not makes_something(route, method, answer.status_code):
                assert snapshot() == before, where
            if caller in OUTSIDERS:
                assert not any(ident in answer.content.decode() for ident in secret), where


@pytest.mark.parametrize("kind", ["admin", "page"])
def test_pages_send_who_is_not_logged_in_to_the_login(client, db, kind):
    for route in [one for one in routes() if kind_of(one) == kind]:
        place = "/" + route.replace("<path:object_id>", "1").replace("<path:content_type_id>", "1")
        for method in ("get", "post"):
            if "<" in place or "(?P" in place or "^" in place or "login" in place:
                continue
            if "jsi18n" in place or "static" in place or "logout" in place:
                continue
            answer = getattr(client, method)(place)
            assert answer.status_code in (302, 403, 404, 405), f"{method} {place}"
            if answer.status_code == 302:
                assert "login" in answer["Location"] or place.rstrip("/") in answer["Location"]


def test_the_operator_of_the_tenant_may_stop_but_not_speak(world, person, api):
    right = ("agentruntime.view_thread", "agentruntime.operate_run")
    client = api(person("ops@red", *right))
    path = f"/api/v1/threads/{world.ids['threads']}"
    assert (
        client.post(
            f"{path}/runs/", BODIES["api/v1/threads/<uuid:pk>/runs/"], format="json"
        ).status_code
        == 403
    )
    assert client.delete(f"{path}/").status_code == 403
    assert (
        client.post(f"/api/v1/runs/{world.ids['runs']}/stop/", {}, format="json").status_code == 200
    )
    assert Run.objects.get(pk=world.ids["runs"]).status == "stopped"
