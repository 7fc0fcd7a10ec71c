"""docs/paddle.md held to the tree: no cell blank, every test it names exists, nothing left out.

Imports pytest and, for the names that must be there, paddle.io. Reads the page and the tests' text.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paddle.md"
_TEST = re.compile(r"`([\w./-]+\.py)::(\w+)`")
_BARE = re.compile(r"`(test_paddle_\w+)`")


def rows() -> list[list[str]]:
    """The lines of all tables, cell by cell, without headings and rules."""
    found = []
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not line.startswith("|--") and not after.startswith("|--"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def text_of(name: str) -> str:
    path = ROOT / name if "/" in name else ROOT / "tests" / "peers" / name
    assert path.exists(), f"docs/paddle.md names {name}, which does not exist"
    return path.read_text(encoding="utf-8")


def test_no_cell_is_blank_and_each_line_names_its_test() -> None:
    assert len(rows()) > 100
    for row in rows():
        assert len(row) == 4, row
        assert all(row), row
        assert _TEST.search(row[-1]), row


def test_every_test_that_is_named_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = _TEST.findall(page)
    assert named
    missing = [
        f"{name}::{test}"
        for name, test in named
        if not re.search(rf"\bdef {test}\(", text_of(name))
    ]
    assert missing == []
    peers = "".join(path.read_text() for path in (ROOT / "tests" / "peers").glob("test_*.py"))
    assert [test for test in _BARE.findall(page) if f"def {test}(" not in peers] == []


def test_every_argument_of_the_constructor_has_a_line() -> None:
    import paddle.io

    firsts = {row[0].strip("`").split("`")[0] for row in rows()}
    arguments = inspect.signature(paddle.io.DataLoader.__init__).parameters
    assert [name for name in arguments if name != "self" and name not in firsts] == []


def test_every_name_of_paddle_io_has_a_line() -> None:
    import paddle.io

    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in paddle.io.__all__ if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize(
    "name",
    "from_generator PyReader from_dataset cache map_readers shuffle chain compose buffered firstn "
    "xmap_readers multiprocess_reader batch use_pinned_memory keep_data_loader_order".split(),
)
def test_every_older_way_of_feeding_has_a_line(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", row[0]) for row in rows())
