"""A row of the table in docs/compatibility.md: versions, day and outcome of a trial.

Imports the standard library. A row is made by a run and read back by the test that holds the page
to pyproject.toml.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass, fields

__all__ = ["HEAD", "Row"]


@dataclass(frozen=True)
class Row:
    """One environment: an extra's oldest or newest packages, and its tests.

    Attributes:
        extra: its name.
        which: "oldest" or "newest".
        packages: "pillow 10.0.0, simplejpeg 1.8.0".
        python: "3.11".
        numpy: the version that was there.
        passed: how many tests passed.
        day: "2026-11-26".
        outcome: "passed", or what failed.
    """

    extra: str
    which: str
    packages: str
    python: str
    numpy: str
    passed: str
    day: str
    outcome: str

    def __str__(self) -> str:
        return f"| {' | '.join(astuple(self))} |"

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        pairs = (each.partition(" ") for each in self.packages.split(", "))
        return {package: version for package, _, version in pairs}

    @classmethod
    def read(cls, page: str) -> list[Row]:
        """Return the rows of the table on a page."""
        _, _, below = page.partition(f"{HEAD}\n")
        table = re.match(r"(\|.*\|\n)*", below)
        lines = table[0].splitlines() if table else []
        return [cls(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


_NAMES = {"numpy": "NumPy", "python": "Python", "passed": "tests passed"}
_TITLES = [_NAMES.get(each.name, each.name) for each in fields(Row)]
HEAD = f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}"
