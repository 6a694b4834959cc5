"""How many statements Django sends, over all threads of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created


class Counter:
    """Counts while it is entered. BEGIN and COMMIT are no statements of Django's and not counted.

    Connections that other threads hold open at its entry are not seen; a worker thread takes one
    anew for its work, and is.
    """

    def __init__(self) -> None:
        self.count = 0
        self.texts: list[str] = []
        self._on = False
        self._lock = threading.Lock()

    def __enter__(self) -> Counter:
        self._on = True
        connection_created.connect(self._watch)
        connections.close_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._on = False
        connection_created.disconnect(self._watch)

    def _watch(self, connection: Any, **_: Any) -> None:
        if self._count not in connection.execute_wrappers:
            connection.execute_wrappers.append(self._count)

    def _count(
        self, execute: Callable[..., Any], statement: str, values: Any, many: bool, context: Any
    ) -> Any:
        if self._on:
            with self._lock:
                self.count += 1
                self.texts.append(statement)
        return execute(statement, values, many, context)
