"""Show the table of options in docs/api/loader.md: whom each concerns, and which loaders take it.

Reads `reader.config.OPTIONS` and the signatures of the loaders. Run as ``python -m
tools.options_page``; it exits 1 where the page says otherwise. With ``--write`` the page gets the
table.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

from reader.config import OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs/api/loader.md"
HEAD = "| option | concerns | default | `compat.torch` | `compat.paddle` | `compat.gluon` |"
_FACES = ("torch", "paddle", "gluon")


def table() -> str:
    """Return the table, in Markdown."""
    rows = [HEAD, "|---|---|---|---|---|---|"]
    taken = {face: _arguments(face) for face in _FACES}
    for name, option in OPTIONS.items():
        found = [_taken(name, face, taken[face]) for face in _FACES]
        default = "the CPU" if name == "places" else f"`{option.default!r}`"
        rows.append(f"| `{name}` | {option.concerns} | {default} | {' | '.join(found)} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """Return the text of a page with the table in the place of the one that it has."""
    lines = page.split("\n")
    first = lines.index(HEAD)
    last = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:first], table(), *lines[last:]])


def _arguments(face: str) -> set[str]:
    loader = importlib.import_module(f"reader.compat.{face}").DataLoader
    return set(inspect.signature(loader).parameters)


def _taken(name: str, face: str, arguments: set[str]) -> str:
    if face in OPTIONS[name].faces:
        return "added"
    return "yes" if name in arguments else ""


def main(arguments: list[str]) -> int:
    """Compare the page with the table, or write the table into it."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = with_table(page)
    if "--write" in arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print(f"{PAGE.name} has another table: run python -m tools.options_page --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
