"""The demo's parts and its verdict.

What the demo trains is tried by `make test`, which runs it; here is what decides its exit code.
"""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tqdm import tqdm

import reader
from tools.demo import __main__ as program
from tools.demo.digits import DigitImages, Split
from tools.demo.figures import EpochFigures, is_in_arena, timed
from tools.demo.options import FULL, SMALL, Options, parse
from tools.demo.places import TrainingPlaces, find_places
from tools.demo.screen import Screen, duration, percent

ROOT = Path(__file__).parents[2]

with tqdm.get_lock():  # a semaphore, which tqdm keeps until the process ends
    pass


def split_of(count: int) -> Split:
    images = np.arange(count * 64, dtype=np.float32).reshape(count, 8, 8)
    return Split(images, np.arange(count, dtype=np.int64) % 10)


def test_digits_are_not_shifted_without_a_generator() -> None:
    split = split_of(3)
    image, label = DigitImages(split)[2]
    np.testing.assert_array_equal(image[0], split.images[2])
    assert label == 2


def test_digits_are_shifted_by_at_most_a_pixel_and_filled_with_zeros() -> None:
    split = split_of(1)
    padded = np.pad(split.images[0] + 1, 1)
    shifts = set()
    for seed in range(100):
        dataset = DigitImages(split, lambda _, seed=seed: np.random.default_rng(seed))
        image = dataset[0][0][0]
        found = [
            (top, left)
            for top in range(3)
            for left in range(3)
            if np.array_equal(
                np.where(padded > 0, padded - 1, 0)[top : top + 8, left : left + 8], image
            )
        ]
        assert len(found) == 1
        shifts.add(found[0])
    assert len(shifts) == 9


def test_digits_come_alike_from_any_number_of_workers() -> None:
    dataset = DigitImages(split_of(20), reader.sample_rng)

    def epoch(workers: int) -> bytes:
        with reader.DataLoader(dataset, batch_size=6, seed=3, num_workers=workers) as loader:
            return b"".join(images.tobytes() for images, _ in loader)

    assert epoch(0) == epoch(2)


def test_timed_notes_a_wait_for_each_batch_and_the_whole() -> None:
    figures = EpochFigures()
    assert list(timed([1, 2, 3], figures)) == [1, 2, 3]
    assert len(figures.waits_s) == 3
    assert 0 <= figures.start_s == figures.waits_s[0]
    assert figures.total_s >= sum(figures.waits_s) >= 0
    assert 0 <= figures.median_wait_s <= figures.longest_wait_s <= figures.total_s
    assert 0 <= figures.wait_share <= 1


def test_memory_of_a_batch_is_distinguished_from_other_memory() -> None:
    with reader.DataLoader(list(range(4)), batch_size=4, num_workers=1) as loader:
        (batch,) = loader
        assert is_in_arena(batch.ctypes.data)
        assert not is_in_arena(batch.copy().ctypes.data)


def test_options_have_a_small_setting_with_its_own_goal() -> None:
    assert parse([]) == FULL
    assert parse(["--small", "--epochs", "2"]) == SMALL
    assert FULL.target == 0.97 > SMALL.target
    assert parse(["--epochs", "3", "--workers", "0", "--seed", "5"]) == Options(
        epochs=3, batch_size=32, rate=FULL.rate, target=0.97, workers=0, seed=5
    )
    chosen = parse(["--place", "cpu", "--devices", "3"])
    assert (chosen.place, chosen.devices) == ("cpu", 3)


@pytest.mark.parametrize(
    "wrong", [["--epochs", "0"], ["--workers", "-1"], ["--epochs", "many"], ["--devices", "0"]]
)
def test_wrong_options_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(wrong)
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_place_of_a_step_gets_its_share_of_the_batch() -> None:
    pytest.importorskip("paddle")
    assert find_places(None, 2) == TrainingPlaces("cpu", ("cpu", "cpu"))
    assert find_places("cpu,cpu,cpu").names == ("cpu",) * 3
    places = find_places("cpu", 4)
    assert dataclasses.replace(FULL, places=places).share == 8
    assert dataclasses.replace(FULL, places=find_places("cpu", 100)).share == 1
    assert places.first.names == ("cpu",)


def test_missing_gpus_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    paddle = pytest.importorskip("paddle")
    if paddle.is_compiled_with_cuda():
        pytest.skip("there may be some")
    assert program.main(["--place", "gpu"]) == 2
    assert "Paddle finds 0 GPUs here, and gpu:0 was asked for. Pass" in capsys.readouterr().out
    assert program.main(["--place", "moon"]) == 2
    assert "--place moon names no places of one kind. Pass cpu, gpu" in capsys.readouterr().out


@pytest.mark.evidence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", ["cpu", "simulated", "simdev:0,simdev:2"])
def test_demo_trains_on_several_places(place: str) -> None:
    pytest.importorskip("paddle")
    command = [sys.executable, "-m", "tools.demo", "--small", "--devices", "2", "--place", place]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    graphs = "both graphs" if place == "cpu" else "the dynamic graph"
    assert f"Done: {graphs} ended at 92.0 % or more" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  2 of 2")]
    assert [row[-1] in ("us", "ms") for row in rows] == [place != "cpu"] * len(rows)


def figures_of(accuracy: float, is_shared: bool = True) -> EpochFigures:
    return EpochFigures([0.5, 0.25], [2e-3, 4e-5], [], 0.5, accuracy, is_shared)


@pytest.mark.parametrize(
    ("dynamic", "static", "code", "said"),
    [
        (figures_of(0.98), figures_of(0.97), 0, "Done: both graphs ended at 97.0 % or more"),
        (
            figures_of(0.969),
            figures_of(0.98),
            1,
            "MISSED: the dynamic graph ended at a test accuracy of 96.9 %, and the goal is 97.0 %.",
        ),
        (
            figures_of(0.98),
            figures_of(0.5),
            1,
            "MISSED: the static graph ended at a test accuracy of 50.0 %, and the goal is 97.0 %.",
        ),
        (
            figures_of(0.98, is_shared=False),
            figures_of(0.98),
            1,
            "MISSED: batches of the dynamic graph were copied before the network saw them.",
        ),
    ],
)
def test_exit_code_says_whether_the_goal_was_met(
    dynamic: EpochFigures,
    static: EpochFigures,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("paddle")
    from tools.demo import compare
    from tools.demo import dynamic as dynamic_graph
    from tools.demo import static as static_graph

    figures = {(name, turn): dynamic for name in ("reader", "paddle.io") for turn in compare.ROUNDS}
    monkeypatch.setattr(program, "load", lambda: (split_of(64), split_of(8)))
    monkeypatch.setattr(program, "quieten_paddle", lambda: None)
    monkeypatch.setattr(dynamic_graph, "train", lambda *_: [figures_of(0.1), dynamic])
    monkeypatch.setattr(static_graph, "train", lambda *_: [figures_of(0.1), static])
    monkeypatch.setattr(compare, "compare", lambda *_: figures)
    assert program.main([]) == code
    assert said in capsys.readouterr().out


def test_screen_writes_a_line_per_epoch_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.header("epoch")
    screen.bar("1 of 2", figures_of(0.98), 2)
    screen.row("1 of 2", figures_of(0.98))
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert (
        lines[0].split() == "epoch loss accuracy time start wait: mean p50 max share copy".split()
    )
    assert lines[1].split() == (
        "1 of 2 0.3750 98.0 % 500 ms 2.0 ms 1.0 ms 1.0 ms 2.0 ms 0.4 % -".split()
    )
    on_device = figures_of(0.98)
    on_device.copy_waits_s = [2e-5, 4e-5]
    screen.row("1 of 2", on_device)
    assert stream.getvalue().rstrip().endswith(" 30 us")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_screen_draws_the_bar_over_itself_and_clears_it_for_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    screen = Screen(stream)
    screen.bar("1 of 2", figures_of(0.98), 10)
    drawn = stream.getvalue()
    assert "\n" not in drawn
    assert len(drawn) <= 79
    assert "[#" in drawn
    assert " 2/10  loss 0.2500  waited 40 us" in drawn
    screen.row("1 of 2", figures_of(0.98))
    assert stream.getvalue().startswith(drawn + "\r\x1b[2K  1 of 2")


def test_times_and_parts_read_well() -> None:
    assert [duration(s) for s in (2.5, 0.25, 0.0125, 12e-6)] == [
        "2.50 s",
        "250 ms",
        "12.5 ms",
        "12 us",
    ]
    assert percent(0.9712) == "97.1 %"
