"""The benchmark's arithmetic, its consumer, its floor's layout and its command line; no timings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.bench import __main__ as command_line
from tools.bench import chart, contestant, meter, summary, table
from tools.bench.child import Child, ContestantFailed, calls_per_batch
from tools.bench.floor import Layout, make_batch
from tools.bench.loaders import CONTESTANTS, DECODE
from tools.bench.summary import Goal, Spread
from tools.bench.touch import as_is, fields_of, touch
from tools.bench.works import WORKS


def facts(*us: float, **others: Any) -> dict[str, Any]:
    same = {
        "batches": 100,
        "making_us": [10.0] * len(us),
        "first_us": [60.0] * len(us),
        "first_fresh_us": 2500.0,
        "base_mb": 20.0,
        "pss_mb": [30.0] * len(us),
        "touch_us": 1.0,
        "touch_cpu_us": 1.0,
        "cpu_us": [9.0] * len(us),
        "untouched_us": 20.0,
        "untouched_cpu_us": 8.0,
        "minor_faults": [0.0] * len(us),
        "voluntary_switches": [0.5] * len(us),
        "calls": {"calls": 2.0, "most": {"read": 1.0, "write": 1.0}},
    }
    return {"us": list(us), **same, **others}


def tiny_results() -> dict[str, Any]:
    return {
        "reader-numpy": facts(30.0, 20.0, 40.0),
        "reader-torch": facts(36.0, 29.0, 45.0, touch_us=3.0),
        "reader-paddle": {"error": "not installed: paddle"},
        "torch": facts(900.0, 800.0, 1600.0),
        "paddle": facts(240.0, 200.0, 320.0),
        "floor": facts(20.0, 20.0, 20.0),
    }


def report() -> dict[str, Any]:
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8.0, "kernel": "6.1"}
    return {
        "command": "python -m tools.bench",
        "machine": {**machine, "python": "3.11.7", "load_before": 0.0, "load_after": 0.5},
        "versions": {"numpy": "2.4.6"},
        "rounds": 3,
        "seconds": 0.5,
        "works": {
            "tiny": tiny_results(),
            "jpeg": {"reader-numpy": facts(9e4), "decode": {"us": [8.8e4], "batches": 12}},
        },
    }


def test_percentile_lies_between_neighbours_in_proportion() -> None:
    assert summary.percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert summary.percentile([1.0, 2.0], 90) == pytest.approx(1.9)
    assert summary.percentile([7.0], 10) == 7.0


def test_ratios_are_taken_within_a_round() -> None:
    spread = summary.ratio([10.0, 40.0, 30.0], [1.0, 2.0, 3.0])
    assert spread.middle == 10.0
    assert spread.low == 10.0
    assert spread.high == pytest.approx(18.0)


def test_a_failed_contestant_has_no_ratio() -> None:
    results = {"reader-numpy": facts(1.0), "torch": {"error": "ended"}}
    assert summary.times(results, "torch", "reader-numpy") is None
    assert summary.times(results, "grain", "reader-numpy") is None


def test_what_an_output_costs_more_leaves_out_what_seeing_its_bytes_costs() -> None:
    more = summary.more_than_ours(tiny_results(), "reader-torch")
    assert more is not None
    assert more.middle == 4.0
    assert summary.more_than_ours(tiny_results(), "reader-paddle") is None


def test_goals_say_met_missed_and_not_measured() -> None:
    verdicts = {goal.text: goal.is_met for goal in summary.goals({"tiny": tiny_results()})}
    assert verdicts == {
        "faster than torch": True,
        "faster than paddle": False,
        "over the bare floor": False,
        "reader-torch above reader-numpy": True,
        "reader-paddle above reader-numpy": None,
        "trainer CPU beside touching": True,
        "first batch above making it": True,
    }


def test_every_work_has_goals() -> None:
    empty: dict[str, Any] = {name: {} for name in WORKS}
    goals = list(summary.goals(empty))
    assert {goal.work for goal in goals} == set(WORKS)
    assert all(goal.is_met is None and goal.missed_by == "" for goal in goals)


@pytest.mark.parametrize(
    ("middle", "is_floor", "unit", "words"),
    [
        (8.0, True, "x", "20 %"),
        (12.0, False, "x", "20 %"),
        (17.0, False, "us", "7 us"),
        (10.0, True, "x", ""),
        (10.0, False, "us", ""),
    ],
)
def test_a_missed_goal_says_by_how_much(
    middle: float, is_floor: bool, unit: str, words: str
) -> None:
    goal = Goal("tiny", "", Spread(middle, middle, middle), 10.0, is_floor, unit)
    assert goal.missed_by == words


def test_durations_use_the_unit_that_reads_best() -> None:
    written = [table.duration(us) for us in (9.54, 123.4, 1234.0, 56789.0, 2.5e6, -1234.0)]
    assert written == ["9.5 us", "123 us", "1.23 ms", "56.8 ms", "2.50 s", "-1.23 ms"]


def test_the_table_puts_ratios_first_and_ends_with_the_goals() -> None:
    text = table.render(report())
    assert text.index("as reader (numpy)") < text.index("for each batch") < text.index("goals")
    assert "tiny: faster than paddle" in text
    assert "MISSED by 11 %" in text
    assert "reader (paddle): not installed: paddle" in text


def test_the_table_does_without_ours() -> None:
    figures = report()
    figures["works"] = {"tiny": {"torch": facts(100.0), "floor": facts(10.0)}}
    text = table.render(figures)
    assert "as bare floor" in text
    assert "goals" not in text


def test_a_chart_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no contestant was measured"):
        chart.draw({"works": {"tiny": {"torch": {"error": "ended"}}}}, tmp_path / "a.svg")


def test_fields_are_found_in_any_container() -> None:
    a, b, c = np.zeros(1), np.zeros(2), np.zeros(3)
    assert [len(x) for x in fields_of({"x": a, "y": [b, (c,)]})] == [1, 2, 3]
    assert [len(x) for x in fields_of((a, b))] == [1, 2]
    assert fields_of(a)[0] is a


def test_touching_sees_every_field_once() -> None:
    seen = []

    def view(field: Any) -> Any:
        seen.append(field.shape)
        return as_is(field)

    touch({"x": np.zeros((3, 5000)), "y": np.zeros(())}, view)
    assert seen == [(3, 5000), ()]


@pytest.mark.parametrize("name", ["tiny", "image", "uint8", "text", "jpeg"])
def test_the_floor_stacks_what_numpy_would(name: str) -> None:
    if name == "jpeg":
        pytest.importorskip("PIL")
        pytest.importorskip("sklearn")
    work = WORKS[name]
    dataset = work.dataset(8)
    layout = Layout(dataset[0], 3)
    memory = bytearray(layout.nbytes)
    views = layout.views(memory, 0)
    make_batch(dataset, layout, 2, layout.rows(views))
    samples = [dataset[index] for index in (2, 3, 4)]
    if isinstance(samples[0], dict):
        expected = [np.stack([sample[key] for sample in samples]) for key in samples[0]]
    elif isinstance(samples[0], tuple):
        expected = [np.stack(column) for column in zip(*samples)]
    else:
        expected = [np.stack(samples)]
    batch = layout.batch(views)
    assert type(batch) is (np.ndarray if name in ("image", "uint8", "jpeg") else type(samples[0]))
    for field, other in zip(fields_of(batch), expected, strict=True):
        assert field.dtype == other.dtype
        np.testing.assert_array_equal(field, other)


def test_an_epoch_is_as_long_as_asked_within_the_limits_of_its_work() -> None:
    work = WORKS["jpeg"]
    assert contestant.epoch_length(work, 1000.0, 0.5) == 500
    assert contestant.epoch_length(work, 1e5, 0.5) == work.shortest
    assert contestant.epoch_length(work, 0.001, 5.0) == contestant.LONGEST


def test_every_work_leaves_a_window_to_measure() -> None:
    for work in WORKS.values():
        for batches in (work.calibration, work.shortest):
            batch = [np.zeros(4)] * batches
            assert meter.run_epoch(batch, batches, 4, as_is, True).batches == batches


def test_an_epoch_that_ends_early_is_refused() -> None:
    with pytest.raises(RuntimeError, match="of 20 batches handed out 19"):
        meter.run_epoch([np.zeros(4)] * 19, 20, 4, as_is, False)
    with pytest.raises(ValueError, match="has no window"):
        meter.run_epoch([], 8, 4, as_is, False)


def test_calls_are_read_from_a_trace_and_divided_by_batches() -> None:
    text = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300           1       200           read
 40.00    0.000200           2       100        20 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500           1       300        20 total
"""
    assert calls_per_batch(text, 100) == {"calls": 3.0, "most": {"read": 2.0, "futex": 1.0}}
    assert calls_per_batch("", 100) is None


def test_a_contestant_opens_takes_turns_and_ends() -> None:
    child = Child("floor", "tiny")
    try:
        child.wait_ready()
        opened = child.ask(do="open", seconds=0.001, fresh=1)
        turn = child.ask(do="turn", touch=True)
    finally:
        child.close()
    assert turn["batches"] == opened["batches"] == WORKS["tiny"].shortest
    assert set(turn) >= {"us", "cpu_us", "minor_faults", "voluntary_switches", "first_us"}


def test_a_contestant_that_fails_says_its_last_words() -> None:
    child = Child("floor", "no such work")
    try:
        with pytest.raises(ContestantFailed, match="KeyError: 'no such work'"):
            child.wait_ready()
    finally:
        child.close()


def test_a_hasty_or_partial_run_leaves_the_chart_of_the_readme_alone() -> None:
    assert command_line.parse([]).chart == command_line.CHART
    assert command_line.parse(["--quick"]).chart is None
    assert command_line.parse(["--works", "tiny"]).chart is None
    assert command_line.parse(["--contestants", "torch"]).chart is None
    assert command_line.parse(["--no-chart"]).chart is None
    assert command_line.parse(["--quick", "--chart", "a.svg"]).chart == Path("a.svg")


def test_peers_take_part_only_when_asked_for() -> None:
    assert command_line.parse([]).peers == []
    assert command_line.parse(["--peers"]).peers == ["spdl", "grain"]
    assert command_line.parse(["--peers", "grain"]).peers == ["grain"]
    assert not {"spdl", "grain"} & set(command_line.parse([]).contestants)
    assert {DECODE, *CONTESTANTS} - {"spdl", "grain"} == set(command_line.parse([]).contestants)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parse(["--works", "tiny,huge"])
    assert "unknown: huge; known: tiny, image" in capsys.readouterr().err


def test_written_figures_are_shown_again_and_drawn_as_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = tmp_path / "a.json"
    figures.write_text(json.dumps(report()), encoding="utf-8")
    drawings = [tmp_path / "folder" / "a.svg", tmp_path / "b.svg"]
    # In a process of its own: matplotlib keeps its font files open.
    for drawing in drawings:
        arguments = ["--from-json", str(figures), "--chart", str(drawing)]
        done = subprocess.run(
            [sys.executable, "-m", "tools.bench", *arguments],
            check=True,
            capture_output=True,
            text=True,
            cwd=command_line.ROOT,
        )
        assert "tiny: 32 x (8 float32, 1 int64)" in done.stdout
    first, second = (drawing.read_text(encoding="utf-8") for drawing in drawings)
    assert first == second
    for words in ("prefers-color-scheme: dark", "decode alone", "PyTorch"):
        assert words in first
