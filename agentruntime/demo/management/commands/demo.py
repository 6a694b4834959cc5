"""`manage.py demo`: everything that a first look needs, in this one process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import BaseCommand, CommandError, CommandParser, call_command

from agentruntime.broker import start_embedded_worker, stop_embedded_worker
from agentruntime.demo.shop import demo_dir

PASSWORD = "teapot-1042"
DECIDES_REFUNDS = ("approvals.decide_refund",)
PEOPLE: tuple[tuple[str, dict[str, bool], tuple[str, ...], str], ...] = (
    ("sam", {}, (), "a customer: writes to the agent"),
    ("lead", {"is_staff": True}, DECIDES_REFUNDS, "decides about refunds, in the admin"),
    ("admin", {"is_staff": True, "is_superuser": True}, DECIDES_REFUNDS, "sees everything"),
)
PORTS = range(8000, 8020)


class Command(BaseCommand):
    """Sets up the database and the people, and serves pages, API, sockets and worker together."""

    help = "Runs the demo shop: sets everything up and prints an address and a login."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, help="default: the first free one from 8000 on")
        parser.add_argument("--dir", help="where the shop keeps its files (default: DEMO_DIR)")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("The demo's password is known to all: it runs with DEBUG=true only.")
        if options["dir"]:
            settings.DEMO_DIR = options["dir"]
        call_command("migrate", interactive=False, verbosity=0)
        for name, flags, permissions, _ in PEOPLE:
            make_person(name, flags, permissions)
        port = options["port"] or free_port(options["host"])
        # Also with a broker: a first look has no other worker. Runs that an earlier process left,
        # however it ended, are found by its sweep.
        start_embedded_worker()
        try:
            serve(options["host"], port, tell=self.tell)
        finally:
            stop_embedded_worker()

    def tell(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


class Server(uvicorn.Server):
    """Says how to begin at the moment at which one can."""

    tell: Callable[[str], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self.tell(welcome(self.config.host, self.config.port))


def make_person(name: str, flags: dict[str, bool], permissions: tuple[str, ...]) -> None:
    """Make a user, or bring one that is there to the state that the demo tells of."""
    user, _ = get_user_model().objects.get_or_create(username=name)
    for flag in ("is_staff", "is_superuser"):
        setattr(user, flag, flags.get(flag, False))
    user.is_active = True
    if not user.check_password(PASSWORD):  # a new hash would end the sessions that are open
        user.set_password(PASSWORD)
    user.save()
    for permission in permissions:
        app, _, codename = permission.partition(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )


def free_port(host: str) -> int:
    """Return the first port from 8000 on that nobody listens on, else any free one."""
    for port in (*PORTS, 0):
        with socket.socket() as probe:
            # As the server will: a port whose last connections still fade away is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CommandError(f"No port is free on {host}.")


def welcome(host: str, port: int) -> str:
    """Return what a person needs to know to begin."""
    address = f"http://{host}:{port}/"
    people = "\n".join(f"    {name:<8}{PASSWORD}    {told}" for name, _, _, told in PEOPLE)
    return f"""
  The demo shop is open:    {address}
  Approvals are decided at  {address}admin/

    user    password
{people}

  1. As sam, write:  Order 1042 arrived broken, please refund it
  2. As lead, in another browser or a private window, decide in the admin.
  3. Look what was paid:  {demo_dir() / "payments.jsonl"}

  Ctrl-C stops it. Killed and started again, it goes on where it was.
"""


def serve(host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve the site's ASGI application until Ctrl-C."""
    module, _, name = settings.ASGI_APPLICATION.rpartition(".")
    application = f"{module}:{name}"
    server = Server(
        uvicorn.Config(application, host=host, port=port, log_level="warning", lifespan="off")
    )
    server.tell = tell
    with contextlib.suppress(KeyboardInterrupt):  # raised again once all is shut
        server.run()
