"""`Journal`: an append-only file of JSON lines that outlives any kill and takes many writers.

The shop's truth about the world lives in such files, outside of the runtime's database, so that
anyone can count with `cat` what really happened.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """One file. A line is there whole and on the disk, or it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """Return all lines, oldest first; none where there is no file yet."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if _whole(line)]

    @contextmanager
    def locked(self) -> Iterator[Page]:
        """Give the file to one writer at a time, across threads and processes.

        The lock belongs to the open file, so it ends with the process that holds it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Page(descriptor, self.entries())
        finally:
            os.close(descriptor)

    def append(self, **entry: Any) -> Entry:
        """Write one line and return it as written: with the moment and the process."""
        with self.locked() as page:
            return page.append(**entry)

    def append_once(self, key: str, **entry: Any) -> Entry:
        """Write one line for `key`; where there is one already, return it and write nothing."""
        with self.locked() as page:
            return page.first_with(key) or page.append(key=key, **entry)


class Page:
    """A journal while it is locked: what stands in it, and the pen."""

    def __init__(self, descriptor: int, entries: list[Entry]) -> None:
        self._descriptor = descriptor
        self.entries = entries

    def first_with(self, key: str) -> Entry | None:
        """Return the oldest line of `key`."""
        return next((entry for entry in self.entries if entry.get("key") == key), None)

    def append(self, **entry: Any) -> Entry:
        """Write one line and see it on the disk before returning it."""
        written = {**entry, "at": datetime.now(UTC).isoformat(), "pid": os.getpid()}
        self._drop_torn_end()
        left = memoryview(json.dumps(written).encode() + b"\n")
        while left:
            left = left[os.write(self._descriptor, left) :]
        os.fsync(self._descriptor)
        self.entries.append(written)
        return written

    def _drop_torn_end(self) -> None:
        """Cut off what a writer left that died within its line: nobody was told of it."""
        size = os.fstat(self._descriptor).st_size
        text = os.pread(self._descriptor, size, 0)
        if text and not _whole(text):
            os.ftruncate(self._descriptor, text.rfind(b"\n") + 1)


def _whole(line: bytes) -> bool:
    return line.endswith(b"\n")
