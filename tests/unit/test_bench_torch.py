"""The PyTorch rows of the benchmark: their arithmetic, views and processes."""

from __future__ import annotations

from typing import Any

import pytest

from tools.bench.child import Child, ContestantFailed
from tools.bench.torch import __main__ as command_line
from tools.bench.torch import rows, table
from tools.bench.torch.rows import OURS, ROWS


def report() -> dict[str, Any]:
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8.0, "kernel": "6.1"}
    return {
        "command": "python -m tools.bench.torch",
        "machine": {**machine, "python": "3.11.7", "load_before": 0.0, "load_after": 0.5},
        "versions": {"numpy": "2.4.6"},
        "rounds": 3,
        "seconds": 0.5,
        "rows": {
            "tiny": {"reader": {"us": [40.0] * 3}, "torch": {"us": [1200.0, 1200.0, 800.0]}},
            "image-tensors": {"reader": {"us": [2e3] * 3}, "torch": {"error": "torch: died\nbus"}},
            "spawn": {"reader": {"us": [1e6] * 3}, "torch": {"us": [2.5e6] * 3}},
            "resume": {"reader": {"us": [6e3] * 3}, "torchdata": {"us": [1e6] * 3}},
        },
    }


def test_ours_stands_first_in_every_row() -> None:
    for row in ROWS.values():
        faces = [entry.face for entry in row.entries]
        assert faces[0] == OURS
        assert OURS not in faces[1:]


def test_goals_are_met_missed_or_not_measured() -> None:
    verdicts = {goal.work: goal.is_met for goal in rows.goals(report()["rows"])}
    assert verdicts == {"tiny": True, "image-tensors": None, "spawn": True, "resume": False}
    assert {goal.is_met for goal in rows.goals({name: {} for name in ROWS})} == {None}


def test_views_tell_ratios_failures_and_goals() -> None:
    text = table.render(report())
    assert "30.0x (22.0x to 30.0x)" in text
    assert "PyTorch: torch: died (bus)" in text
    assert "MISSED by 1000 us" in text
    lines = table.markdown(report()).splitlines()
    assert len(lines) == 2 + 4
    assert "| 2.00 ms | PyTorch: fails |" in lines[3]
    assert "| 6.00 ms | StatefulDataLoader, 10^6 samples: 167x (1.00 s) |" in lines[5]


def test_command_line_knows_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.parse([]).rows == list(ROWS)
    with pytest.raises(SystemExit):
        command_line.parse(["--rows", "tiny,huge"])
    assert "unknown: huge" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "row"), [("reader", "tiny-tensors"), ("reader", "resume")])
def test_contestant_takes_its_turn(name: str, row: str) -> None:
    pytest.importorskip("torch")
    child = Child(name, row, command_line.CONTESTANT, 40.0)
    try:
        child.wait_ready()
        child.ask(do="open", seconds=0.001, fresh=1)
        assert child.ask(do="turn", touch=True)["us"] > 0
    finally:
        child.close()


def test_contestant_that_nobody_knows_says_so() -> None:
    child = Child("nobody", "tiny", command_line.CONTESTANT)
    try:
        with pytest.raises(ContestantFailed, match="no contestant 'nobody' in row 'tiny'"):
            child.wait_ready()
    finally:
        child.close()
