"""A typed program: what mypy and pyright must pass and refuse.

Reads `typed_program.py`. pyright is tried where it is installed, with the
Node.js of its wheel; nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
CHECKERS = ["mypy", "pyright"]


def refused(checker: str, program: Path) -> list[int]:
    """Return the lines that a checker finds an error in."""
    if checker == "mypy":
        config = "--strict --show-error-end --no-error-summary --follow-imports=silent".split()
        command = [sys.executable, "-m", "mypy", *config, "--cache-dir", str(ROOT / ".mypy_cache")]
        found = run([*command, str(program)])
        return sorted({int(each) for each in re.findall(r"\.py:(\d+):.*?: error:", found)})
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed here")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    told = json.loads(run([*command, str(program)]))["generalDiagnostics"]
    errors = [each for each in told if each["severity"] == "error"]
    return sorted({each["range"]["start"]["line"] + 1 for each in errors})


def run(command: list[str]) -> str:
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", CHECKERS)
def test_typed_program_is_refused_in_the_lines_that_are_wrong_alone(checker: str) -> None:
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# error")]
    assert len(wrong) == 10
    assert refused(checker, PROGRAM) == wrong
