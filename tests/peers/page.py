"""A page of docs with tables: what a peer does, what we do, and the test that shows it.

Imports the standard library. Reads the page and the text of the tests it names.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`([\w./-]+\.py)::(\w+)`")
_BARE = re.compile(r"`(test_\w+)`")


class Page:
    """`docs/<name>.md`; its tables have four columns, and the last one names a test."""

    def __init__(self, name: str) -> None:
        self.path = ROOT / "docs" / f"{name}.md"
        self.text = self.path.read_text(encoding="utf-8")

    def rows(self) -> list[list[str]]:
        """The lines of all tables, cell by cell, without headings and rules."""
        found = []
        lines = self.text.split("\n")
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith("|") and not line.startswith("|--") and not after.startswith("|--"):
                found.append([cell.strip() for cell in line.strip("|").split("|")])
        return found

    def firsts(self) -> set[str]:
        """Return the subjects of the lines: the first cells, or the code that they begin with."""
        return {row[0].strip("`").split("`")[0] for row in self.rows()}

    def check_cells(self, at_least: int) -> None:
        """No cell is blank, and each line names its test."""
        assert len(self.rows()) > at_least
        for row in self.rows():
            assert len(row) == 4, row
            assert all(row), row
            assert _TEST.search(row[-1]), row

    def check_tests(self) -> None:
        """Every test that is named exists."""
        named = _TEST.findall(self.text)
        assert named
        missing = [
            f"{name}::{test}"
            for name, test in named
            if not re.search(rf"\bdef {test}\(", self._text_of(name))
        ]
        assert missing == []
        peers = "".join(path.read_text() for path in (ROOT / "tests" / "peers").glob("test_*.py"))
        assert [test for test in _BARE.findall(self.text) if f"def {test}(" not in peers] == []

    def _text_of(self, name: str) -> str:
        path = ROOT / name if "/" in name else ROOT / "tests" / "peers" / name
        assert path.exists(), f"{self.path.name} names {name}, which does not exist"
        return path.read_text(encoding="utf-8")
