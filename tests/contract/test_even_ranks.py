"""Ranks end together: sums over real gloo ranks are exact, whatever fails, and none waits."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_ranks import LIMIT_S, environment, free_address, run
from tests.even_program import CASES, COUNT, sums_without

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "tests" / "even_program.py")


def evaluate(cases: list[str], ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Run cases in a group of real ranks; return what each of them found."""
    python, address = [sys.executable, "-W", "ignore"], free_address()
    commands = [
        [*python, PROGRAM, str(folder), "; ".join(cases), str(rank), str(ranks), address]
        for rank in range(ranks)
    ]
    run(commands, [environment()] * ranks, folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_an_evaluation_of_1003_samples_counts_1003_on_any_number_of_ranks(
    ranks: int, tmp_path: Path
) -> None:
    found = evaluate(list(CASES), ranks, tmp_path)
    steps = math.ceil(math.ceil(COUNT / ranks) / 16)
    failing = {*range(0, 16 * ranks, ranks), 500, 501, 502, COUNT - 1}
    for each in found:
        assert each == found[0]
    for case, told in found[0].items():
        if case.startswith("skip"):
            assert told["sums"] == sums_without(*failing), case
            assert told["failed"] >= len(failing)
        elif case == "replace":
            assert told["sums"] == sums_without(3, 500, 501, 502, COUNT - 1)
        else:
            assert told["sums"] == sums_without(), case
        if case != "batches":
            assert told["steps"] == steps, case
