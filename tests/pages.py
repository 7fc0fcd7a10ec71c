"""The examples of the documents, and what their programs may take for given.

A block of ```python goes on from those above it on its page; one of ```py is a program of its own.
Imports nothing of the package, and keeps no state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["DOCS", "Program", "fences", "programs_of"]

DOCS = Path(__file__).parents[1] / "docs"


def fences(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, language, content) of each fenced block."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


class Program:
    """A program of a page.

    Args:
        code: of it.
        printed: what the page says that it prints; None: the page says nothing.
    """

    def __init__(self, code: str, printed: str | None) -> None:
        self.code, self.printed = code, printed


def programs_of(page: str) -> list[Program]:
    """Return the programs of a page, named without its ending, such as "tables"."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    # what a block prints stands right below it
    found = re.finditer(
        r"^```py\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```$)?",
        text,
        re.MULTILINE | re.DOTALL,
    )
    return [Program(match["code"], match["printed"]) for match in found]
