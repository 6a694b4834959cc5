"""COMMITs whose answer is lost: the commit lands, or not, and the client hears of neither."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

LOST = "the connection was cut inside COMMIT (database is locked)"


class Cut:
    """Counts the COMMITs of all threads; `happened` says whether the chosen one came."""

    def __init__(self) -> None:
        self.commits = 0
        self.happened = False


@contextmanager
def cut_at_commit(nth: int, *, lands: bool) -> Iterator[Cut]:
    """Cut the connection inside the `nth` COMMIT of the block, after or before it lands."""
    cut, commit = Cut(), BaseDatabaseWrapper._commit

    def cutting(self: BaseDatabaseWrapper) -> None:
        cut.commits += 1
        if cut.commits != nth:
            commit(self)
            return
        cut.happened = True
        if lands:
            commit(self)
        else:
            self._rollback()
        raise OperationalError(LOST)

    BaseDatabaseWrapper._commit = cutting
    try:
        yield cut
    finally:
        BaseDatabaseWrapper._commit = commit
        connection.close()
