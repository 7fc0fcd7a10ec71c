"""Hold the documents to the tree: every link, path and make target they name exists.

And what an extra brings is named in one way, in documents and messages: "lodreader[images]". Reads
README.md, CHANGELOG.md, docs/ and reader/; follows nothing outside the checkout. Run as
``python -m tools.check_docs``; it prints each violation as ``file:line: message``, exit code 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

REQUIRED = ("README.md", "CHANGELOG.md", "docs/architecture.md", "docs/concurrency.md")
# By the extras for users: pyproject.toml.
BROUGHT = frozenset(
    "paddlepaddle paddlepaddle-gpu torch jax cuda-bindings pillow simplejpeg pyarrow google-crc32c"
    " ray matplotlib obstore".split()
)
TOPS = ("reader", "cython_ext", "tests", "tools", "docs", "requirements")

_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|\b(?:src|href)=\"([^\"]+)\"")
_PATH = re.compile(r"`((?:%s)/[\w./*-]*)`" % "|".join(TOPS))  # noqa: UP031 (the braces are markdown)
_TARGET = re.compile(r"`make ([a-z-]+)[^`]*`|^\s*(?:\$ )?make ([a-z-]+)\b")
_HEADING = re.compile(r"^#+ +(.*)$")
_RULE = re.compile(r"^\|(?::?-+:?\|)+$")
_NEXT = r"(?:[\"']\n\s+f?[\"'])?"  # the next piece of one string in a program
_COMMAND = re.compile(rf"\bpip{_NEXT} install{_NEXT} ([^`\n]*)")
_OTHER_WAY = re.compile(r"\.\[|(?<![\"\w])lodreader\[|lodreader\[[\w,-]*\](?!\")")
_FENCE = re.compile(r"^\s*(```|~~~)")


def check(root: Path) -> list[str]:
    """Return names in the documents below `root` that do not exist, as ``file:line: message``."""
    found = [f"{name}:1: is missing" for name in REQUIRED if not (root / name).exists()]
    targets = _make_targets(root)
    folders = [root / "docs", root / "reader"]
    pages = [path for folder in folders for path in sorted(folder.rglob("*.md"))]
    for path in [*sorted(root.glob("*.md")), *pages]:
        where = path.relative_to(root)
        found += [f"{where}:{line}: {text}" for line, text in _check_page(root, path, targets)]
        found += _check_commands(root, path)
    for path in sorted((root / "reader").rglob("*.py")):
        found += _check_commands(root, path)
    return found


def _check_commands(root: Path, path: Path) -> Iterator[str]:
    """Find packages of an extra that a command names in another way than by that extra."""
    text = path.read_text(encoding="utf-8")
    for match in _COMMAND.finditer(text):
        command, _, _ = match[1].partition("#")
        words = set(re.findall(r"(?<![\w.,[-])[a-z][\w-]*(?![\w\[.-])", command))
        bare = words & BROUGHT if "--force-reinstall" not in command else set()
        if _OTHER_WAY.search(command) or bare:
            line = text.count("\n", 0, match.start()) + 1
            yield f'{path.relative_to(root)}:{line}: write pip install "lodreader[extra]"'


def _check_page(root: Path, page: Path, targets: set[str]) -> Iterator[tuple[int, str]]:
    is_code, before = False, ""
    lines = page.read_text(encoding="utf-8").split("\n")
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""]), start=1):
        if _FENCE.match(line):
            is_code = not is_code
            continue
        is_first = line.startswith("|") and not before.startswith("|")
        if is_first and not is_code and not _RULE.match(after):
            yield number, "a table needs |---| below its first line"
        before = line
        for match in _TARGET.finditer(line):
            name = match[1] or match[2]
            # Outside of code, a line of prose may well begin with the word "make".
            if name not in targets and (match[1] or is_code):
                yield number, f"the Makefile has no target {name}"
        if is_code:
            continue
        for match in _LINK.finditer(line):
            message = _check_link(page, match[1] or match[2])
            if message:
                yield number, message
        for match in _PATH.finditer(line):
            name = match[1].rstrip("/")
            if not (any(root.glob(name)) if "*" in name else (root / name).exists()):
                yield number, f"{name} does not exist"


def _check_link(page: Path, link: str) -> str | None:
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    if not target.exists():
        return f"links to {link}, which does not exist"
    if anchor and target.suffix == ".md" and anchor not in _anchors(target):
        return f"links to {link}, a heading that {target.name} lacks"
    return None


def _anchors(page: Path) -> set[str]:
    found = set()
    for line in page.read_text(encoding="utf-8").split("\n"):
        heading = _HEADING.match(line)
        if heading:
            words = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            found.add(words.replace(" ", "-"))
    return found


def _make_targets(root: Path) -> set[str]:
    text = (root / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def main() -> int:
    """Check the checkout this file lies in."""
    violations = check(Path(__file__).resolve().parent.parent)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
