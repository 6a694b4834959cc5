"""What a guard is, and what is there without it."""

from dataclasses import dataclass

LIFECYCLE = "agentruntime/lifecycle/"


@dataclass(frozen=True)
class Mutant:
    """A guard, where it stands, what stands there without it, and who must notice."""

    name: str
    file: str
    guard: str
    without: str
    tests: str
    db: str = "sqlite"
