"""Typed programs: what mypy and pyright must pass and refuse, before and after a switch.

Reads the `typed_*.py` beside it. Each checker runs once, over all programs whose libraries are
installed here. pyright is tried where it is installed, with the Node.js of its wheel; nothing is
downloaded.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKERS = ["mypy", "pyright"]
# program -> the libraries that it imports
PROGRAMS = {
    "typed_program": [],
    "typed_faces": ["torch", "paddle"],
    "typed_torch": ["torch"],
    "typed_paddle": ["paddle"],
}
# program -> the start of its import, and what a switch makes of it
SWITCHES = {
    "typed_torch": ("from torch.utils.data import (", "from reader.compat.torch import ("),
    "typed_paddle": ("from paddle.io import (", "from reader.compat.paddle import ("),
}
Verdict = set[tuple[int, str]]  # of each error its line and rule


@pytest.fixture(scope="module", params=CHECKERS)
def verdict_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Verdict]:
    """Return what a checker finds in a program, or in "switched_" and its name."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed here")
    programs = {name: source(name) for name in PROGRAMS if not missing(name)}
    folder = tmp_path_factory.mktemp("switched")
    for name, (before, after) in SWITCHES.items():
        if name in programs:
            text = programs[name].read_text(encoding="utf-8")
            assert text.count(before) == 1
            programs[f"switched_{name}"] = folder / f"switched_{name}.py"
            programs[f"switched_{name}"].write_text(text.replace(before, after), encoding="utf-8")
    found = (found_by_mypy if request.param == "mypy" else found_by_pyright)(
        list(programs.values())
    )

    def of(name: str) -> Verdict:
        plain = name.removeprefix("switched_")
        if missing(plain):
            pytest.skip(f"{', '.join(missing(plain))} is not installed here")
        return found.get(programs[name].name, set())

    return of


def source(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.py")


def missing(program: str) -> list[str]:
    return [name for name in PROGRAMS[program] if importlib.util.find_spec(name) is None]


def marked(program: str) -> list[int]:
    lines = source(program).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# error")]


def found_by_mypy(programs: list[Path]) -> dict[str, Verdict]:
    config = "--strict --no-error-summary".split()
    command = [sys.executable, "-m", "mypy", *config, "--cache-dir", str(ROOT / ".mypy_cache")]
    found: dict[str, Verdict] = {}
    errors = re.findall(
        r"([^/\n]+\.py):(\d+): error: .*\[([a-z-]+)\]$", run(command, programs), re.MULTILINE
    )
    for name, line, rule in errors:
        found.setdefault(name, set()).add((int(line), rule))
    return found


def found_by_pyright(programs: list[Path]) -> dict[str, Verdict]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    found: dict[str, Verdict] = {}
    for each in json.loads(run(command, programs))["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found.setdefault(Path(each["file"]).name, set()).add((line, each.get("rule", "")))
    return found


def run(command: list[str], programs: list[Path]) -> str:
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    ended = subprocess.run(
        [*command, *map(str, programs)],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", ["typed_program", "typed_faces"])
def test_program_is_refused_in_the_lines_that_are_wrong_alone(
    verdict_of: Callable[[str], Verdict], program: str
) -> None:
    wrong = marked(program)
    assert len(wrong) > 10
    assert sorted({line for line, _ in verdict_of(program)}) == wrong


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", list(SWITCHES))
def test_switch_of_the_import_changes_no_verdict(
    verdict_of: Callable[[str], Verdict], program: str
) -> None:
    verdict = verdict_of(program)
    wrong = marked(program)
    assert len(wrong) > 25
    assert {line for line, _ in verdict} >= {*wrong}
    assert verdict_of(f"switched_{program}") == verdict
