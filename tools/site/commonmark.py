"""Makes Python-Markdown read pages as GitHub's Markdown does.

Imports nothing of the checkout, and keeps no state.
"""

from __future__ import annotations

import re

__all__ = ["as_python_markdown", "slug"]

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^( *)((?:[-*]|\d+\.) +)(?=\S)")


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def as_python_markdown(text: str) -> str:
    """Indent the contents of an item by four, and put an empty line before each list."""
    lines: list[str] = []
    widths: list[tuple[int, int]] = []  # of the items around: where the text begins, here and there
    fenced = False
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if not line:
            lines.append(line)
            continue
        if not fenced or _FENCE.match(line):
            while widths and indent < widths[-1][0] and not (fenced and indent):
                widths.pop()
        item = None if fenced else _ITEM.match(line)
        if item and not widths and lines and lines[-1] and not _in_list(lines):
            lines.append("")
        cut, put = widths[-1] if widths else (0, 0)
        lines.append(" " * put + line[min(cut, indent) :])
        if item:
            widths.append((len(item[0]), put + 4))
        if _FENCE.match(line):
            fenced = not fenced
    return "\n".join(lines)


def _in_list(lines: list[str]) -> bool:
    """Tell whether the last paragraph belongs to a list."""
    for line in reversed(lines):
        if not line:
            return False
        if _ITEM.match(line):
            return True
    return False
