"""A sentence about the machine or the program, and its severity.

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
    """The result of one check.

    Args:
        level: "ok"; "note": may matter to some programs; "warning": makes a loader slow or fragile;
            "error": makes it fail here.
        subject: the checked thing, in two or three words.
        found: what was found, in one line, with values. A note also says what it means for a
            loader.
        remedy: what to do about a warning or an error; otherwise empty.
    """

    level: Level
    subject: str
    found: str
    remedy: str = ""


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 2 if a finding is an error, 1 if one is a warning, otherwise 0."""
    return max((_EXIT_CODES[each.level] for each in findings), default=0)


def report(findings: Sequence[Finding]) -> str:
    """Return the findings as text: a line for each with its remedy below, and their counts."""
    width = max((len(each.subject) for each in findings), default=0)
    lines = []
    for each in findings:
        # they have names of machines and files, and foreign errors
        lines.append(printable(f"{each.level:<8} {each.subject:<{width}}  {each.found}"))
        if each.remedy:
            lines.append(printable(f"{'':<8} {'':<{width}}  -> {each.remedy}"))
    levels = [each.level for each in findings]
    counts = [(levels.count(level), level) for level in ("error", "warning", "note")]
    said = ", ".join(f"{count} {level}{'s' * (count != 1)}" for count, level in counts)
    lines.append(f"\n{len(findings)} findings: {said}")
    return "\n".join(lines)
