"""The tool that measures "auto": each work runs, and a table names what was compared.

Imports pytest and the tool. Holds nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.auto_bench.__main__ import FIXED, in_process, main, table, told
from tools.auto_bench.works import WORKS


@pytest.mark.parametrize("name", WORKS)
def test_each_work_runs_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    found = in_process(name, {"num_workers": 2}, 0.05, tmp_path)
    assert found.later > 0
    assert found.whole > 0
    assert found.chosen == (2, 2)


def test_a_row_has_each_ratio_and_the_chosen_numbers() -> None:
    names = ("best", "best with workers", "default", "2 workers", "whole run, best")
    ratios = {name: 1 + number / 10 for number, name in enumerate(names)}
    row = {"work": "tiny", "best": "0", "best with workers": "4 x 2", "auto to": ratios}
    last = table([{**row, "chosen": [(2, 4), (1, 2)]}]).splitlines()[-1]
    expected = "tiny 1.00 ( 0) 1.10 ( 4 x 2) 1.20 1.30 1.40 2x4 1x2"
    assert last.split() == expected.split()


def test_settings_are_named_by_workers_and_batches_in_flight() -> None:
    assert [told(setting) for setting in FIXED][:3] == ["0", "1 x 2", "1 x 4"]


def test_an_unknown_work_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no work is called nothing" in capsys.readouterr().err
