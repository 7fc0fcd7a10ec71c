"""The examples of the documents, and the names that their programs may use.

A block of ```python goes on from those above it on its page; one of ```py is a program of its own.
Imports nothing of the package, and keeps no state.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["DOCS", "Program", "fences", "programs_of", "run_program"]

DOCS = Path(__file__).parents[1] / "docs"


def fences(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, language, content) of each fenced block."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


class Program(NamedTuple):
    """A program of a page.

    Attributes:
        code: of it.
        printed: what the page says that it prints; None: the page says nothing.
    """

    code: str
    printed: str | None


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


def run_program(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, in a folder, with the checkout and paths to import."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (DOCS.parent, *paths)))},
        capture_output=True,
        text=True,
        check=False,
    )
