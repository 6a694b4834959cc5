"""The code that the README shows, so that tests run what people copy."""

import re

from tests.processes import ROOT


def block(name: str) -> str:
    """Return the block that follows `<!-- test: NAME -->` in the README."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"<!-- test: {re.escape(name)} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    assert found, f"The README shows no {name}."
    return found[1]
