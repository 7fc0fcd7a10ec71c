"""One sentence about the machine or the program, and how bad it is.

Imports the errors. A finding is a value that never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reader.errors import printable

__all__ = ["Finding", "Level", "exit_code", "report"]

Level = Literal["ok", "note", "warning", "error"]

_EXIT_CODES: dict[Level, int] = {"ok": 0, "note": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Finding:
    """What one look found.

    Args:
        level: "ok"; "note", which may matter to some programs; "warning", which makes a loader slow
            or fragile; "error", which makes it fail here.
        subject: what was looked at, in two or three words.
        found: what there is, in one line, with its values. A note says what it means for a loader.
        remedy: what to do, of a warning or an error; else empty.
    """

    level: Level
    subject: str
    found: str
    remedy: str = ""


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 2 where a finding is an error, 1 where one is a warning, else 0."""
    return max((_EXIT_CODES[each.level] for each in findings), default=0)


def report(findings: Sequence[Finding]) -> str:
    """Return the findings as text: a line for each, below it the remedy, and how many there are."""
    width = max((len(each.subject) for each in findings), default=0)
    lines = []
    for each in findings:
        # names of machines, files and errors of others are in them
        lines.append(printable(f"{each.level:<8} {each.subject:<{width}}  {each.found}"))
        if each.remedy:
            lines.append(printable(f"{'':<8} {'':<{width}}  -> {each.remedy}"))
    levels = [each.level for each in findings]
    counts = [(levels.count(level), level) for level in ("error", "warning", "note")]
    said = ", ".join(f"{count} {level}{'s' * (count != 1)}" for count, level in counts)
    lines.append(f"\n{len(findings)} findings: {said}")
    return "\n".join(lines)
