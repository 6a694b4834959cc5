"""The guards that `tests.mutants` takes away, and who must notice."""

from tests.guards.calls import CALLS
from tests.guards.mutant import Mutant
from tests.guards.people import PEOPLE
from tests.guards.runs import RUNS
from tests.guards.stored import STORED

MUTANTS = [*RUNS, *CALLS, *PEOPLE, *STORED]

__all__ = ["MUTANTS", "Mutant"]
