"""The benchmark: its turns, arithmetic, floors, views, processes and command line; no timings."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.bench import __main__ as command_line
from tools.bench import chart, contestant, limits, meter, readme, report, runner
from tools.bench.child import Child, ContestantFailed
from tools.bench.floor import Layout
from tools.bench.rows import OURS, TABLES, TORCH
from tools.bench.works import WORKS
from tools.turns import ROOT


class FakeChild:
    """A contestant that notes its requests, and fails on request."""

    def __init__(self, name: str, log: list[str], fails_at: str = "") -> None:
        self.name, self.log, self.fails_at = name, log, fails_at

    def receive(self) -> dict[str, float]:
        return self.ask("ready")

    def ask(self, what: str) -> dict[str, float]:
        self.log.append(f"{self.name} {what}")
        if what == self.fails_at:
            raise ContestantFailed(f"{self.name}: ended\nlast words")
        return {"turn": {"us": 2.0}, "first": {"first_us": 9.0}}.get(what, {})

    def leave(self) -> None:
        self.log.append(f"{self.name} leave")

    def close(self) -> None:
        self.log.append(f"{self.name} close")


def play(log: list[str], rounds: int, launches: int, fails_at: str = "") -> dict[str, Any]:
    starts: dict[str, Any] = {
        "a": lambda: FakeChild("a", log),
        "b": lambda: FakeChild("b", log, fails_at),
    }
    return runner.take_turns(starts, rounds, launches)


def facts(*us: float, **others: float) -> dict[str, Any]:
    same = {"cpu_us": 8.0, "fresh_us": 2500.0, "first_us": 60.0, **others}
    return {"launches": [[{"us": value, **same} for value in us]]}


def whole_report() -> dict[str, Any]:
    """Every row with made-up figures: each peer takes twice as long, a peer of one row fails."""
    tables: dict[str, Any] = {}
    for table, names in command_line.rows_of().items():
        for name in names:
            row = TABLES[table][name]
            left = {"left": 0.0} if row.kind == "break" else {}
            ours = {OURS: facts(30.0, 20.0, 40.0, **left)}
            peers = {
                peer.name: facts(60.0, 40.0, 80.0, first_us=120.0, **left)
                for peer in row.contestants[1:]
            }
            tables.setdefault(table, {})[name] = {**ours, **peers}
    machine = {"cpu": "a processor", "cores": 2, "kernel": "6.1", "python": "3.11.7"}
    return {
        "machine": {**machine, "load_before": 0.0, "load_after": 0.5, "versions": ["numpy 2.4"]},
        "rounds": 3,
        "seconds": 0.5,
        "launches": 1,
        "tables": tables,
    }


def against_report() -> dict[str, Any]:
    made = whole_report()
    made["against"] = "old.whl"
    made["tables"] = {
        "engine": {
            "tiny": {"old": facts(20.0, 40.0, 30.0), "new": facts(22.0, 44.0, 33.0)},
            "text": {"old": facts(10.0), "new": {"error": "new: ended\nTypeError: no"}},
        },
        "torch": {"spawn": {"old": facts(10.0), "new": facts(10.0)}},
    }
    return made


def test_contestants_take_turns_and_each_begins_once() -> None:
    log: list[str] = []
    results = play(log, rounds=2, launches=2)
    turns = "a turn, b turn, a first, b first, b turn, a turn, b first, a first"
    launch = f"a ready, b ready, a open, b open, {turns}, a leave, b leave, b close, a close"
    swapped = "b turn, a turn, b first, a first, a turn, b turn, a first, b first"
    assert log == [*launch.split(", "), *launch.replace(turns, swapped).split(", ")]
    turn = {"us": 2.0, "first_us": 9.0}
    assert results["a"] == results["b"] == {"launches": [[turn, turn], [turn, turn]]}


@pytest.mark.parametrize("fails_at", ["ready", "open", "turn", "first"])
def test_contestant_that_fails_is_closed_and_skipped(
    fails_at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    results = play(log, rounds=2, launches=2, fails_at=fails_at)
    assert results["b"] == {"error": "b: ended\nlast words"}
    assert [len(turns) for turns in results["a"]["launches"]] == [2, 2]
    assert log.count(f"b {fails_at}") == log.count("b close") == 1
    assert "b fails: b: ended" in capsys.readouterr().err


def test_launch_ends_when_it_has_lasted_too_long() -> None:
    starts: dict[str, Any] = {"a": lambda: FakeChild("a", [])}
    results = runner.take_turns(starts, 9, longest_s=0.0)
    assert len(results["a"]["launches"][0]) == runner.LEAST_ROUNDS


def test_contestant_that_hangs_is_killed_and_reported() -> None:
    child = Child("engine", "tiny", "floor", 0.001)
    child.receive()
    os.kill(child.pid, signal.SIGSTOP)
    child.timeout_s = 0.2
    start = time.monotonic()
    with pytest.raises(ContestantFailed, match=r"floor: no answer in 0\.2 s"):
        child.ask("open")
    child.close()
    assert 0.2 <= time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("table", "row", "name", "needs"),
    [
        ("engine", "tiny", "floor", "numpy"),
        ("engine", "tiny", "reader", "numpy"),
        ("engine", "tiny-stream", "reader", "numpy"),
        ("engine", "arrays", "reader", "numpy"),
        ("engine", "arrays", "take", "numpy"),
        ("engine", "image", "streaming", "numpy"),
        ("engine", "tiny", "spdl-threads", "spdl"),
        ("engine", "tiny", "spdl-pool", "spdl"),
        ("engine", "tiny", "grain", "grain"),
        pytest.param("places", "two-places", "reader", "paddle", marks=pytest.mark.evidence),
        pytest.param("places", "two-places", "paddle", "paddle", marks=pytest.mark.evidence),
        ("inline", "tiny-tensors-inline", "reader", "torch"),
        ("opening", "own-new-1", "reader", "numpy"),
        ("opening", "own-kept-4-shuffled", "reader", "numpy"),
        ("opening", "own-pool", "reader", "numpy"),
        ("opening", "own-pool", "torch", "torch"),
        pytest.param("opening", "paddle-new-1", "paddle", "paddle", marks=pytest.mark.evidence),
        pytest.param("inline", "collated-inline", "reader", "torch", marks=pytest.mark.evidence),
        ("paddle", "feed-inline", "reader", "paddle"),
        pytest.param("torch", "tiny-tensors", "reader", "torch", marks=pytest.mark.evidence),
        ("torch", "resume", "reader", "torch"),
    ],
)
def test_contestant_opens_and_takes_turns(table: str, row: str, name: str, needs: str) -> None:
    pytest.importorskip(needs)
    child = Child(table, row, name, 0.001)
    try:
        child.receive()
        child.ask("open")
        figures = {**child.ask("turn"), **child.ask("first")}
    finally:
        child.close()
    has_one = row == "resume" or table == "opening"
    assert set(figures) == ({"us"} if has_one else set(report.FIGURES))
    assert min(figures.values()) > 0
    if not has_one:
        assert figures["all_cpu_us"] >= figures["cpu_us"]


OPEN = """
import hashlib, sys
import numpy as np
from tools.bench.loaders import open_loader
from tools.bench.meter import fields_of
from tools.bench.rows import TABLES

row = TABLES["engine"][sys.argv[1]]
loader = open_loader(row, row.contestant(sys.argv[2]), row.work.dataset(4 * row.work.batch_size))
for batch in loader:
    arrays = [np.ascontiguousarray(field) for field in fields_of(batch)]
    print(" ".join(sorted(hashlib.sha256(array).hexdigest() for array in arrays)))
loader.close()
"""


@pytest.mark.parametrize("row", ["uint8", "text"])
@pytest.mark.parametrize(
    "name", ["reader", "floor", "streaming", "spdl-threads", "spdl-pool", "grain"]
)
def test_contestants_hand_out_the_same_batches(row: str, name: str) -> None:
    entry = TABLES["engine"]["uint8"].contestant(name)
    pytest.importorskip(entry.face.partition(".")[0] or "numpy")
    if entry not in TABLES["engine"][row].contestants:
        pytest.skip("this row is for what is copied through the cache")
    command = [sys.executable, "-c", OPEN, row, name]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    size = WORKS[row].batch_size
    dataset = WORKS[row].dataset(4 * size)
    expected = []
    for number in range(4):
        samples: Any = range(number * size, (number + 1) * size)
        if name == "grain":  # one of its two workers makes the batches of the even samples
            samples = range(number // 2 * 2 * size + number % 2, 4 * size, 2)[:size]
        columns = zip(*(meter.fields_of(dataset[index]) for index in samples), strict=True)
        digests = [hashlib.sha256(np.stack(column)).hexdigest() for column in columns]
        expected.append(" ".join(sorted(digests)))
    assert done.stdout.splitlines() == expected, done.stderr


def test_optional_peers_that_are_not_installed_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seats: list[str] = []

    def note(starts: dict[str, Any], *_: Any) -> dict[str, Any]:
        seats.extend(starts)
        return {}

    monkeypatch.setattr(runner, "take_turns", note)
    monkeypatch.setattr(
        "tools.bench.rows.find_spec", lambda name: None if name == "grain" else object()
    )
    made = runner.measure({"engine": ["tiny"]}, ROOT, None, 1, 0.1, 1)
    assert seats == "reader torch paddle spdl-threads spdl-pool floor".split()
    assert made["not_installed"] == ["Grain"]
    assert "left out, for they are not installed: Grain" in report.render(made)
    assert "tiny" in capsys.readouterr().err


def test_last_output_of_a_failed_contestant_is_shown() -> None:
    child = Child("engine", "tiny", "nobody", 0.001)
    try:
        with pytest.raises(ContestantFailed, match="no contestant 'nobody' in row 'tiny'; known:"):
            child.receive()
    finally:
        child.close()


def test_only_code_of_the_named_folder_is_measured(tmp_path: Path) -> None:
    child = Child("engine", "tiny", "reader", 0.001, tmp_path)
    try:
        with pytest.raises(ContestantFailed, match="was to be measured, but reader came from"):
            child.receive()
    finally:
        child.close()


def test_wheel_is_unpacked_or_refused(tmp_path: Path) -> None:
    def wheel(*names: str) -> Path:
        path = tmp_path / "some.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "")
        return path

    core = f"reader/_core/memory/arena{EXTENSION_SUFFIXES[0]}"
    fine = runner.unpack(wheel("reader/__init__.py", core), tmp_path / "a")
    assert (fine / core).is_file()
    with pytest.raises(ValueError, match=r"some\.whl is not a wheel of this package"):
        runner.unpack(wheel("other/__init__.py"), tmp_path / "b")
    with pytest.raises(ValueError, match="is built for another Python"):
        runner.unpack(wheel("reader/__init__.py", "reader/_core/a.cpython-37m.so"), tmp_path / "c")
    with pytest.raises(ValueError, match="is not a wheel: "):
        runner.unpack(tmp_path / "none.whl", tmp_path / "d")
    assert command_line.ROOT == ROOT


def test_ours_stands_first_in_every_row_and_peers_keep_apart() -> None:
    for rows in TABLES.values():
        for row in rows.values():
            names = [entry.name for entry in row.contestants]
            assert names.index(OURS) == 0
            assert len(set(names)) == len(names)
            assert {*row.at_least} <= {*names}
            assert {row.figure, *row.at_most} <= {*report.FIGURES}


def test_paddle_is_never_run_in_the_mode_that_hangs() -> None:
    for row in TABLES["paddle"].values():
        if row.has_peer and row.samples == "stream":
            assert "persistent_workers" not in row.options


def test_every_work_leaves_windows_to_measure() -> None:
    for work in WORKS.values():
        low, middle, high = meter.windows(work.shortest, 4)
        assert 4 <= low < middle < high < work.shortest - 4
        assert (middle - low) % 4 == (high - middle) % 4 == 0
        assert set(meter.run_epoch([np.zeros(4)] * 40, 40, 4)) == {
            "us",
            "cpu_us",
            "all_cpu_us",
        }


def test_epoch_that_ends_early_is_refused() -> None:
    with pytest.raises(RuntimeError, match="of 20 batches handed out 19"):
        meter.run_epoch([np.zeros(4)] * 19, 20, 4)
    with pytest.raises(ValueError, match="an epoch of 8 batches is too short"):
        meter.run_epoch([], 8, 4)


def test_epoch_is_as_long_as_asked_within_limits() -> None:
    image, arrays = WORKS["image"], WORKS["arrays"]
    assert contestant.epoch_length(image, 1000.0, 0.5) == 500
    assert contestant.epoch_length(image, 1e5, 0.5) == image.shortest
    assert contestant.epoch_length(image, 0.001, 5.0) == image.longest
    assert contestant.epoch_length(arrays, 10.0, 0.6) == 10**6 // 256


def test_fields_are_found_and_touched_in_any_container() -> None:
    a, b, c = np.zeros(1), np.zeros(2), np.zeros(3)
    assert [len(x) for x in meter.fields_of({"x": a, "y": [b, (c,)]})] == [1, 2, 3]
    assert meter.fields_of(a)[0] is a
    seen: list[Any] = []
    meter.touch((a, np.zeros((3, 5000))), lambda field: seen.append(field.shape) or field)
    assert seen == [(1,), (3, 5000)]


@pytest.mark.parametrize("name", list(WORKS))
def test_floor_stacks_what_numpy_would(name: str) -> None:
    if name == "jpeg":
        pytest.importorskip("PIL")
        pytest.importorskip("sklearn")
    dataset = WORKS[name].dataset(8).resized(9)
    assert len(dataset) == 9
    layout = Layout(dataset[0], 3)
    views = layout.views(bytearray(layout.nbytes), 0)
    layout.stack(dataset, 2, views)
    batch = layout.join(views)
    samples = [meter.fields_of(dataset[index]) for index in (2, 3, 4)]
    for field, column in zip(meter.fields_of(batch), zip(*samples), strict=True):
        expected = np.stack(column)
        assert field.dtype == expected.dtype
        np.testing.assert_array_equal(field, expected)


def test_ratios_are_taken_within_a_round() -> None:
    results = {"over": facts(10.0, 40.0, 30.0), "under": facts(1.0, 2.0, 3.0)}
    ratio = report.Ratio.of(results, "over", "under")
    assert ratio is not None
    assert ratio.middle == 10.0
    low, high = ratio.interval
    assert 10.0 <= low <= high <= 20.0
    results["under"] = {"error": "ended"}
    assert report.Ratio.of(results, "over", "under") is None


def test_interval_is_wide_when_launches_differ() -> None:
    same = report.Ratio(((1.0, 1.01, 0.99),) * 3).interval
    apart = report.Ratio(((1.0, 1.01, 0.99), (1.2, 1.21, 1.19), (0.8, 0.81, 0.79))).interval
    assert same[1] - same[0] < 0.03
    assert apart[1] - apart[0] > 0.3
    uneven = report.Ratio(((1.0, 1.01, 0.99), (1.2,))).interval
    assert 0.99 <= uneven[0] < 1.0 < uneven[1] == 1.2


def test_total_is_the_geometric_mean() -> None:
    ratios = [report.Ratio(((2.0, 2.0),)), report.Ratio(((0.5, 0.5),))]
    assert report.total_of(ratios) == pytest.approx((1.0, 1.0, 1.0))


def test_durations_use_the_most_readable_unit() -> None:
    written = [report.duration(us) for us in (9.54, 123.4, 1234.0, 56789.0, 2.5e6)]
    assert written == ["9.5 us", "123 us", "1.23 ms", "56.8 ms", "2.50 s"]


def test_text_shows_ratios_goals_and_failures() -> None:
    made = whole_report()
    made["tables"]["torch"]["tiny"][TORCH.name] = {"error": "torch: ended\nOSError: killed"}
    text = report.render(made)
    assert re.search(r"PyTorch +2.00x +2.00x to 2.00x +60.0 us +8.0 us", text)
    assert "goal MISSED: PyTorch takes 2.00x, at least 50.0x" in text
    assert "goal met: bare floor takes 2.00x, at least 0.71x" in text
    assert "torch fails: torch: ended (OSError: killed)" in text
    assert "Paddle, leaves 0 processes" in text
    assert re.search(r"own-pool +30.0 us +60.0 us +2.00x +2.00x to 2.00x +met", text)
    assert re.search(r"torch-workers +30.0 us +60.0 us +2.00x +2.00x to 2.00x +MISSED", text)


def test_versions_are_compared_by_figure_with_noise_and_a_total() -> None:
    text = report.render_against(against_report())
    assert re.search(r"engine tiny +30.0 us +33.0 us +1.100 +1.100 to 1.100 +slower", text)
    assert re.search(r"torch spawn +10.0 us +10.0 us +1.000 +1.000 to 1.000\n", text)
    assert re.search(r"geometric mean +1.049", text)
    assert "new fails: new: ended (TypeError: no)" in text
    assert text.endswith("total of 8: 1.012 (1.012 to 1.012)")


def form(text: str) -> list[str]:
    """Return the lines of a block with its figures masked."""
    text = re.sub(r"\d[\d.]* (us|ms|s)\b", "TIME", text)
    text = re.sub(r"\b\d[\d.]*(x| times as long)", "RATIO", text)
    text = re.sub(r"\| [\d,]+ \|", "| N |", text)
    text = re.sub(r"\d+%", "SHARE", text)
    text = re.sub(r"on \d+ cores of .*, Python [\d.]+, load before: [\d.]+", "on CORES", text)
    text = re.sub(r"\d+ (rounds|processes left)", r"N \1", text)
    return [line for line in text.splitlines() if line]


def test_blocks_of_the_pages_have_the_form_that_the_tool_writes(tmp_path: Path) -> None:
    copies, expected = [], []
    written = (readme.summary(whole_report()), readme.details(whole_report()))
    for page, block in zip((command_line.README, command_line.SPEED), written, strict=True):
        text = page.read_text(encoding="utf-8")
        found = text[text.index(readme.BEGIN) : text.index(readme.END) + len(readme.END)]
        assert form(found) == form(block)
        copies.append(tmp_path / page.name)
        copies[-1].write_text(text, encoding="utf-8")
        expected.append(text.replace(found, block))
    readme.write(whole_report(), *copies)
    assert [copy.read_text(encoding="utf-8") for copy in copies] == expected
    partial = whole_report()
    del partial["tables"]["torch"]["spawn"]
    with pytest.raises(ValueError, match="the pages show every row: torch lacks spawn"):
        readme.write(partial, *copies)


def test_readme_tells_a_stranger_how_long_a_batch_takes() -> None:
    text = readme.summary(whole_report())
    row = "| 32 rows of a table, of 8 numbers and a label | 30 | 2.0 times as long |"
    assert row in text
    assert "floor" not in text
    assert "Decoding the JPEG files alone, in two processes, takes 2.0 times as long." in text
    details = readme.details(whole_report())
    assert "a bare arena and pipes" in details
    for words in ("SPDL", "Grain", "streaming", "places"):
        assert words not in details


def test_command_line_chooses_rows_and_lengths() -> None:
    usual = command_line.parse([])
    assert (usual.rounds, usual.seconds, usual.launches) == command_line.USUAL
    assert usual.rows == command_line.rows_of()
    quick = command_line.parse(["--quick", "--rounds", "2", "--rows", "tiny", "feed"])
    assert (quick.rounds, quick.seconds) == (2, command_line.QUICK[1])
    assert quick.rows == {"engine": ["tiny"], "paddle": ["feed"], "torch": ["tiny"]}
    assert list(command_line.parse(["--table", "torch"]).rows) == ["torch"]
    against = command_line.parse(["--against", "a.whl"])
    assert (against.rounds, against.seconds, against.launches) == command_line.AGAINST
    assert against.json != usual.json
    assert "tiny-stream" in against.rows["engine"]
    assert "resume" not in against.rows["torch"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--rows tiny huge", "invalid choice: 'huge' (choose from"),
        ("--table jax", "invalid choice: 'jax' (choose from"),
        ("--rounds 0", "--rounds must be positive"),
        ("--seconds -1", "--seconds must be positive"),
        ("--rows tiny-torch", "none of these rows is measured so"),
        ("--rows resume --against a.whl", "none of these rows is measured so"),
        ("--readme --quick", "--readme shows every row"),
        ("--readme --against a.whl", "leave out --against"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command_line.parse(arguments.split())
    assert words in capsys.readouterr().err


def test_chart_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no contestant of the engine's table was measured"):
        chart.draw({"tables": {"engine": {"tiny": {"torch": {"error": "a"}}}}}, tmp_path / "a.svg")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.bench", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.evidence
def test_written_figures_are_shown_again_and_drawn_as_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = tmp_path / "a.json"
    figures.write_text(json.dumps(whole_report()), encoding="utf-8")
    drawings = [tmp_path / "folder" / "a.svg", tmp_path / "b.svg"]
    # In a process of its own: matplotlib keeps its font files open.
    for drawing in drawings:
        done = run("--from-json", str(figures), "--chart", str(drawing))
        assert "engine tiny: 32 x (8 float32, 1 int64)" in done.stdout, done.stderr
    first, second = (drawing.read_text(encoding="utf-8") for drawing in drawings)
    assert first == second
    for words in ("prefers-color-scheme: dark", "decode alone", "PyTorch", "32 rows of a table"):
        assert words in first
    for words in ("bare floor", "streaming floor", "SPDL", "Grain"):
        assert words not in first


def test_file_that_is_no_wheel_is_refused_before_the_first_measurement(tmp_path: Path) -> None:
    done = run("--against", str(tmp_path / "none.whl"))
    assert done.returncode == 2
    assert "none.whl is not a wheel: " in done.stderr


@pytest.mark.evidence
def test_rows_are_measured_and_written(tmp_path: Path) -> None:
    figures = tmp_path / "folder" / "a.json"
    short = ["--rounds", "2", "--seconds", "0.01", "--json", str(figures)]
    done = run("--table", "inline", "--rows", "text-inline", *short)
    assert "inline text-inline: text, a dict of 3 x 512 int64" in done.stdout, done.stderr
    results = json.loads(figures.read_text(encoding="utf-8"))["tables"]["inline"]["text-inline"]
    assert {len(result["launches"][0]) for result in results.values()} == {2}, results


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ((100.0, 20.0, 150.0, 80.0), "bandwidth"),
        ((100.0, 90.0, 60.0, 0.0), "trainer"),
        ((100.0, 20.0, 170.0, 10.0), "interpreter"),
        ((100.0, 20.0, 60.0, 10.0), "wake-ups"),
    ],
)
def test_limit_is_the_largest_part(times: tuple[float, float, float, float], limit: str) -> None:
    us, trainer_us, workers_us, copy_us = times
    found = limits.Profile(us, trainer_us, workers_us, 1.0, 1000, copy_us, cores=2, workers=2)
    assert found.limit == limit
    assert limit in limits.render({"tiny": found})


@pytest.mark.evidence
def test_profile_of_a_row_is_measured() -> None:
    done = run("--profile", "--rows", "arrays", "tiny-inline", "--seconds", "0.05")
    assert done.returncode == 0, done.stderr
    assert "arrays" in done.stdout
    assert "tiny-inline" in done.stdout
