"""The people, graphs and processes that the tests of the edges use."""

from tests.edges.conftest import api, asking, echo, person, runtime, shop, web, work

__all__ = ["api", "asking", "echo", "person", "runtime", "shop", "web", "work"]
