"""The Paddle rows of the benchmark: their arithmetic, views, processes and command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tools.bench.child import ROOT, Child, ContestantFailed
from tools.bench.lineup import Lineup
from tools.bench.paddle import __main__ as command_line
from tools.bench.paddle import rows, table
from tools.bench.paddle.rows import OURS, PADDLE, ROWS


def facts(*us: float, first_us: float = 60.0, **others: Any) -> dict[str, Any]:
    same = {"batches": 40, "making_us": [10.0] * len(us), "first_us": [first_us] * len(us)}
    return {"us": list(us), **same, **others}


def feed_results() -> dict[str, Any]:
    return {
        "reader-0": facts(600.0, 500.0, 700.0),
        "paddle-0": facts(1200.0, 2000.0, 2100.0),
        "reader-2": facts(400.0, 400.0, 400.0),
        "paddle-2": {"error": "paddle-2: ended\nTraceback\nSystemError: killed"},
        "again": facts(100.0, 200.0, 300.0),
        "array": facts(800.0, 800.0, 800.0),
        "copy": facts(1000.0, 1000.0, 1000.0),
    }


def report() -> dict[str, Any]:
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8.0, "kernel": "6.1"}
    return {
        "command": "python -m tools.bench.paddle",
        "machine": {**machine, "python": "3.11.7", "load_before": 0.0, "load_after": 0.5},
        "versions": {"numpy": "2.4.6"},
        "rounds": 3,
        "seconds": 0.5,
        "rows": {
            "feed": feed_results(),
            "start": {
                "reader": facts(20.0, first_us=300.0),
                "reader-ahead": facts(20.0, first_us=1500.0),
                "paddle": facts(200.0, first_us=502_000.0),
            },
            "break": {
                "reader": facts(2e4, 2e4, left=[0, 0]),
                "reader-kept": facts(400.0, 400.0, left=[0, 0]),
                "paddle": facts(1e4, 3e4, left=[0, 2]),
            },
        },
    }


def test_every_contestant_stands_beside_one_of_ours_in_its_row() -> None:
    for row in ROWS.values():
        names = [entry.name for entry in row.entries]
        assert len(set(names)) == len(names)
        for entry in row.entries:
            assert entry.face in ("", OURS, PADDLE)
            if entry.beside:
                assert row.entry(entry.beside).face == OURS
                assert row.entry(entry.beside).beside == ""
            else:
                assert entry.face == OURS
        assert row.bar == "" or row.bar in names


def test_both_loaders_of_a_pair_get_the_same_arguments_and_the_same_dataset() -> None:
    for row in ROWS.values():
        for entry in row.entries:
            if entry.face == PADDLE:
                ours = row.entry(entry.beside)
                assert (entry.options, entry.is_iterable) == (ours.options, ours.is_iterable)


def test_paddle_never_gets_the_mode_in_which_it_hangs() -> None:
    for row in ROWS.values():
        for entry in row.entries:
            if entry.face == PADDLE and entry.is_iterable:
                assert not entry.options["persistent_workers"]


def test_ratios_and_what_is_above_the_bar_are_taken_within_a_round() -> None:
    row, results = ROWS["feed"], feed_results()
    ratio = rows.times(row, results, "paddle-0")
    assert ratio is not None
    assert ratio.middle == 3.0
    more = rows.above(row, results, "reader-0")
    assert more is not None
    assert more.middle == 400.0


def test_a_contestant_that_failed_has_no_ratio_and_nothing_above() -> None:
    row, results = ROWS["feed"], feed_results()
    assert rows.times(row, results, "paddle-2") is None
    assert rows.above(row, results, "paddle-2") is None
    assert rows.above(ROWS["start"], report()["rows"]["start"], "reader") is None


def test_a_row_of_epoch_starts_compares_first_batches() -> None:
    ratio = rows.times(ROWS["start"], report()["rows"]["start"], "paddle")
    assert ratio is not None
    assert ratio.middle == pytest.approx(502_000.0 / 300.0)


def test_goals_say_met_missed_and_not_measured() -> None:
    figures = report()["rows"]
    verdicts = [(goal.work, goal.is_met) for goal in rows.goals(figures)]
    assert verdicts == [("feed", False), ("feed", True), ("start", True), ("start", False)]
    empty: dict[str, Any] = {name: {} for name in ROWS}
    assert [goal.is_met for goal in rows.goals(empty)] == [None] * 4
    assert list(rows.goals({})) == []


def test_the_text_puts_ratios_first_tells_who_failed_and_ends_with_the_goals() -> None:
    text = table.render(report())
    assert text.index("times as long") < text.index("above it") < text.index("goals")
    assert "3.00x" in text
    assert "Paddle, 2 workers: paddle-2: ended (SystemError: killed)" in text
    assert "2 after 1 breaks" in text
    assert "MISSED by 490 us" in text


def test_the_markdown_has_a_line_for_each_loader_of_paddle() -> None:
    lines = table.markdown(report()).splitlines()
    assert len(lines) == 2 + 4
    assert all(line.count("|") == 5 for line in lines)
    assert "a step, no workers | 600 us | 3.00x (2.00 ms) |" in lines[2]
    assert "| 400 us | fails | one zero-copy DenseTensor again and again 200 us;" in lines[3]
    assert "reader, prefetch_next_epoch 1.50 ms" in lines[4]
    assert lines[5].endswith("processes left by reader: 0; processes left by Paddle: 2 |")


def test_the_command_line_honours_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    usual = command_line.parse([])
    assert (usual.rounds, usual.seconds, usual.rows) == (7, 0.6, list(ROWS))
    assert usual.json == command_line.JSON
    quick = command_line.parse(["--quick", "--rounds", "2", "--rows", "feed,break"])
    assert (quick.rounds, quick.seconds, quick.rows) == (2, 0.15, ["feed", "break"])
    with pytest.raises(SystemExit):
        command_line.parse(["--rows", "feed,food"])
    assert "unknown: food; known: feed, start" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.parse(["--rounds", "0"])
    assert "must be positive" in capsys.readouterr().err


def test_a_contestant_that_hangs_is_killed_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    lineup = Lineup()
    child = Child("floor", "tiny")
    try:
        lineup.enter("floor", child)
        child.wait_ready()
        os.kill(child.pid, signal.SIGSTOP)
        child.timeout_s = 0.2
        start = time.monotonic()
        lineup.open(0.001, 1)
        assert 0.2 <= time.monotonic() - start < 10
    finally:
        lineup.close()
    assert lineup.folded() == {"floor": {"error": "floor: no answer in 0.2 s\n"}}
    assert "floor fails: floor: no answer" in capsys.readouterr().err
    assert lineup.order(0) == []


def test_each_contestant_begins_once() -> None:
    lineup = Lineup()
    lineup.children = dict.fromkeys("abc")  # type: ignore[assignment]
    assert [lineup.order(number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


@pytest.mark.parametrize("name", ["reader-0", "again", "copy"])
def test_a_static_program_is_fed_with_and_without_a_loader(name: str) -> None:
    pytest.importorskip("paddle")
    child = Child(name, "feed", command_line.CONTESTANT, 40.0)
    try:
        child.wait_ready()
        opened = child.ask(do="open", seconds=0.001, fresh=1)
        turn = child.ask(do="turn", touch=True)
    finally:
        child.close()
    assert turn["batches"] == opened["batches"] == ROWS["feed"].work.shortest
    assert turn["us"] > 0


def test_a_contestant_that_fails_says_its_last_words() -> None:
    child = Child("nobody", "feed", command_line.CONTESTANT)
    try:
        with pytest.raises(ContestantFailed, match="no contestant 'nobody' in row 'feed'"):
            child.wait_ready()
    finally:
        child.close()


@pytest.mark.slow
@pytest.mark.peer
def test_a_row_is_measured_written_and_shown_again(tmp_path: Path) -> None:
    pytest.importorskip("paddle")
    figures = tmp_path / "folder" / "a.json"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tools.bench.paddle", *arguments],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        return done.stdout

    told = run("--rows", "break", "--rounds", "2", "--seconds", "0.01", "--json", str(figures))
    results = json.loads(figures.read_text(encoding="utf-8"))["rows"]["break"]
    assert list(results) == ["reader", "reader-kept", "paddle"]
    assert all(len(result["us"]) == 2 for result in results.values()), results
    assert results["reader"]["left"] == results["reader-kept"]["left"] == [0, 0]
    assert "break: iterable break" in told
    shown = run("--from-json", str(figures), "--markdown")
    assert shown.startswith("| what | reader |")
