"""The tables of `CASES.md` name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMED = re.compile(r"(?:(?P<file>[\w/]+\.py))?(?:(?P<short>\.\.\.|::)(?P<test>\w+))?")
ROWS = [line for line in (HERE / "CASES.md").read_text().splitlines() if line.startswith("|")]


def find(name: str) -> Path:
    """A file without a folder is in `tests/promises/`, or stands beside this one."""
    places = [HERE / "promises" / name, HERE / name, HERE.parent / name]
    found = next((one for one in places if one.exists()), None)
    assert found is not None, f"there is no {name}"
    return found


def names_in(file: Path) -> list[str]:
    tree = ast.walk(ast.parse(file.read_text()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [one.name for one in tree if isinstance(one, kinds) and one.name.startswith("test_")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_what_a_row_names_is_there(row):
    file = None
    for word in re.findall(r"`([^`]+)`", row):
        match = NAMED.fullmatch(word)
        if match is None:
            continue
        file = find(match["file"]) if match["file"] else file
        if match["test"]:
            assert file is not None
            names = names_in(file)
            same = [one for one in names if one.endswith(match["test"])]
            assert match["test"] in names or (match["short"] == "..." and same), word


def test_the_rule_itself_notices():
    with pytest.raises(AssertionError, match=r"there is no test_nothing\.py"):
        test_what_a_row_names_is_there("| X | x | `test_nothing.py` |")
    with pytest.raises(AssertionError, match="test_nothing_at_all"):
        test_what_a_row_names_is_there("| X | x | `test_cases.py::test_nothing_at_all` |")
