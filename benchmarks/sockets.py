"""Many sockets on one web process: delay of an event, memory of a socket, with one that is deaf.

    python -m tests.services -- python -m benchmarks.sockets --sockets 500 --seconds 20

Prints the delay from the commit of an event to its arrival at each of the sockets (goal: p95 of
300 ms) and the memory that each socket costs the web process (goal: 100 kB). All of it, the
database included, shares this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--threads", type=int, default=50, help="over how many threads they spread")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=0.2, help="between two events, in seconds")
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.edges.site_settings"
    os.environ["SITE_AGENTRUNTIME"] = json.dumps({"SOCKETS_PER_USER": options.sockets + 10})
    import django

    django.setup()
    measure(options)


def measure(options: argparse.Namespace) -> None:
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from agentruntime.models import Thread
    from agentruntime.tokens import create_token

    call_command("migrate", verbosity=0)
    user = get_user_model().objects.create_user(f"sockets-{time.time_ns()}")
    token = create_token(user, ["read"])[1]
    threads = [Thread.objects.create(user=user) for _ in range(options.threads)]
    port = free_port()
    web = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "uvicorn",
            "config.asgi:application",
            "--log-level=warning",
            "--ws-per-message-deflate=false",  # as the README says
            "--port",
            str(port),
        ],
        cwd=ROOT,
    )
    try:
        wait_for(port)
        asyncio.run(follow(options, port, token, threads, psutil.Process(web.pid)))
    finally:
        web.terminate()
        web.wait()


async def follow(
    options: argparse.Namespace, port: int, token: str, threads: list[Any], web: psutil.Process
) -> None:
    from websockets.asyncio.client import connect

    header = {"Authorization": f"Token {token}"}
    paths = [f"ws://127.0.0.1:{port}/ws/threads/{one.pk}/" for one in threads]
    warm = await connect(paths[0], additional_headers=header)
    await asyncio.sleep(1)
    before = web.memory_info().rss
    opened = []
    began = time.monotonic()
    for number in range(options.sockets):
        opened.append(await connect(paths[number % len(paths)], additional_headers=header))
    took = time.monotonic() - began
    deaf = connect_deaf(port, paths[0], token)
    await asyncio.sleep(4)
    each = (web.memory_info().rss - before) / options.sockets
    delays: list[float] = []
    listeners = [asyncio.create_task(listen(one, delays)) for one in opened]
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(threads, options.pause, stop))
    cpu = sum(web.cpu_times()[:2])
    writer.start()
    await asyncio.sleep(options.seconds)
    stop.set()
    await asyncio.to_thread(writer.join)
    await asyncio.sleep(2)
    cpu = (sum(web.cpu_times()[:2]) - cpu) / options.seconds
    for one in listeners:
        one.cancel()
    deaf.close()
    delays.sort()
    shown = {name: delays[int(len(delays) * part)] for name, part in
             (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}  # fmt: skip
    print(
        f"{options.sockets} sockets on {len(threads)} threads, opened in {took:.1f} s, "
        f"one more that never reads\n{len(delays)} frames: "
        + ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in shown.items())
        + f", max {1000 * delays[-1]:.0f} ms, mean {1000 * statistics.fmean(delays):.0f} ms\n"
        f"{each / 1024:.0f} kB per socket, web process at {100 * cpu:.0f} % of one core"
    )
    for one in [warm, *opened]:
        one.transport.abort()


async def listen(opened: Any, delays: list[float]) -> None:
    async for text in opened:
        delays.append(time.time() - json.loads(text)["data"]["t"])


def write(threads: list[Any], pause: float, stop: threading.Event) -> None:
    """One event in turn for each thread; its time is that of its transaction."""
    from django.db import connections

    from agentruntime.lifecycle.record import tell
    from agentruntime.models.transactions import durably

    number = 0
    while not stop.is_set():
        place = threads[number % len(threads)].pk
        data = {"t": time.time(), "text": "x" * 300}
        durably(lambda place=place, data=data: tell(place, None, [("test.said", data)]))
        number += 1
        stop.wait(pause)
    connections.close_all()


def connect_deaf(port: int, path: str, token: str) -> socket.socket:
    deaf = socket.create_connection(("127.0.0.1", port))
    place = path.partition(f":{port}")[2]
    lines = [
        f"GET {place} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Token {token}",
    ]
    deaf.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return deaf


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live").close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("The web process did not start.")


if __name__ == "__main__":
    main()
