"""The people, graphs and workers that the tests of the edges use."""

from tests.edges.conftest import api, asking, echo, person, runtime, shop, work

__all__ = ["api", "asking", "echo", "person", "runtime", "shop", "work"]
