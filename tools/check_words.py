"""Hold the sources to the house's plain rules: headers, no polling, nothing left to do.

Functions of Cython have few branches; of Python's ruff counts them. Looks at what git tracks or
would track. Run as ``python -m tools.check_words``; it prints each
violation as ``file:line: message`` and exits 1 when there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

CODE = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp"}
TEXT = CODE | {".md", ".toml", ".txt", ".in"}
# of a function in Cython, counted as ruff does: one more than the lines that begin with these
MAX_BRANCHES = 22
_FUNCTION = re.compile(r"( *)(?:cdef|cpdef|def)\s+(?!class\b|extern\b|enum\b|struct\b)[^=]*\(")
_BRANCH = re.compile(r" *(?:if|elif|for|while|except)\b")

# Each pattern is written so that it does not match itself. A line that must break the rule ends
# in a comment with "word-ok" and the reason.
RULES: list[tuple[set[str], re.Pattern[str], str]] = [
    (TEXT, re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b"), "leaves something to do"),
    (TEXT, re.compile(r"(?<![\w.$}/])/(?:hom[e]|roo[t]|User[s]|wor[k])/\w"), "names one machine"),
    (TEXT, re.compile(r"\t| +$"), "has a tab or blanks at its end"),
    (
        CODE,
        re.compile(
            r"\b(?:rd_arena_let_g[o]|rd_turne[d]|forget_claim[s]|forget_object[s]|objects_roo[m]"
            r"|free_spar[e]|end_gran[t]|drop_hol[d]|at_inde[x]|leave_share[s]"
            r"|forget_proces[s]|leave_proces[s]|leave_stoppe[d]|await_roo[m]|HasRoo[m]|way_o[f]"
            r"|_let_g[o]|give_bac[k]|give_u[p]|end_worke[r]|end_shar[e]|end_copie[s]|end_al[l]"
            r"|forget_erro[r]|forget_gon[e]|leave_with_progra[m]|order_sourc[e]|most_shard[s]"
            r"|shards_o[f]|_?has_roo[m]|_await_roo[m]|hel[d]_by|is_hear[d]|short_of_memor[y]"
            r"|note_share_en[d]|untol[d]|least_roo[m]|_no_roo[m]|is_tor[n]|refuse_ful[l]"
            r"|said_en[d]|without_turn[s])\b"
        ),
        "uses a retired word: docs/glossary.md has the one for it",
    ),
    (
        TEXT,
        re.compile(
            r"(?i:pass that wit[h] a|is refused with a reaso[n]|nobody has t[o]\b"
            r"|as is bes[t] where|whether anothe[r] .* tells of)"
        ),
        "is a riddle: say who does what",
    ),
    (
        {".pyx", ".pxd", ".pxi", ".h", ".hpp"},
        re.compile(r"\b(?:nanoslee[p]|uslee[p]|slee[p]|sched_yiel[d])\s*\("),
        "polls: every wait has a waker",
    ),
]


def check(root: Path, paths: list[str]) -> list[str]:
    """Return the violations in `paths`, relative to `root`, as ``file:line: message``."""
    found = []
    for name in sorted(paths):
        path = root / name
        if path.suffix not in TEXT or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, start=1):
            if "word-ok" in line:
                continue
            for suffixes, pattern, message in RULES:
                if path.suffix in suffixes and pattern.search(line):
                    found.append(f"{name}:{number}: {message}")
        if path.suffix in {".pyx", ".pxd"}:
            found += [f"{name}:{number}: {message}" for number, message in _check_cython(lines)]
    return found


def _check_cython(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Find a missing header, and functions with too many branches."""
    if "".join(lines) and not lines[0].startswith(("#", '"')):
        yield 1, "has no header: what lives here, what it imports, who owns it"
    for number, line in enumerate(lines, start=1):
        head = _FUNCTION.match(line)
        if head is None or "word-ok" in line:
            continue
        branches = _branches(lines[number:], head[1])
        if branches > MAX_BRANCHES:
            yield number, f"has {branches} branches, and {MAX_BRANCHES} are the most: split it"


def _branches(lines: list[str], margin: str) -> int:
    """Count the branches of a function whose head has that margin, in the lines behind it."""
    inside = (f"{margin} ", f"{margin})", "#")
    body = takewhile(lambda line: not line or line.startswith(inside), lines)
    return 1 + sum(_BRANCH.match(line) is not None for line in body)


def files_of(root: Path) -> list[str]:
    """Name the files of a checkout that git tracks, or would: those it does not ignore.

    Without git, as in an unpacked sdist, name the files of the folders that hold sources.
    """
    if not (root / ".git").exists():
        tops = ("reader", "cython_ext", "tests", "tools", "docs", "requirements")
        below = (path for top in tops for path in (root / top).rglob("*"))
        paths = [*root.iterdir(), *below]
        named = "LICENSE", "Makefile"
        found = (path for path in paths if path.suffix in TEXT or path.name in named)
        return [str(path.relative_to(root)) for path in found]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name]


def main() -> int:
    """Check the checkout this file lies in."""
    root = Path(__file__).resolve().parent.parent
    violations = check(root, files_of(root))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
