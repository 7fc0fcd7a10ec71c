"""What a profile draws and writes: a trace that Perfetto reads, a picture, a table."""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigTypeError, ReaderError
from reader.observe.profile import Profile

SLOW = 21
pytestmark = pytest.mark.usefixtures("opened_fonts")


class Numbers:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.1 if index == SLOW else 0.0005)
        return np.full(4, index, np.float32)


def seen_of(workers: int) -> Profile:
    with (
        reader.DataLoader(Numbers(), batch_size=8, num_workers=workers) as loader,
        loader.profile() as seen,
    ):
        assert len(list(loader)) == 8
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trace_has_tracks_of_trainer_and_workers(workers: int, tmp_path: Path) -> None:
    """As the trace-event format demands; see the document of that name."""
    seen = seen_of(workers)
    seen.to_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str)
        assert event["ph"] in "MXbeiC"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= -1e6
        assert ("dur" in event) == (event["ph"] == "X")
        assert event.get("dur", 0) >= 0
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    making = {1: "trainer, making batches"} if not workers else {1: "worker 0", 2: "worker 1"}
    assert tracks == {0: "trainer", **making}
    spans: dict[tuple[str, int], list[Any]] = {}
    for event in events:
        if event["ph"] == "X":
            spans.setdefault((event["name"], event["tid"]), []).append(event)
    assert [e["args"]["batch"] for e in spans["step", 0]] == list(range(8))
    fetched = [e["args"]["batch"] for track in tracks for e in spans.get(("fetch", track), [])]
    assert sorted(fetched) == list(range(8))
    opened = [e["id"] for e in events if e["ph"] == "b"]
    assert opened == [e["id"] for e in events if e["ph"] == "e"]
    assert len(opened) >= (6 if workers else 0)
    slows = [event for event in events if event["ph"] == "i"]  # the machine may add others
    slow = max(slows, key=lambda event: float(event["args"]["ms"]))
    assert {event["s"] for event in slows} == {"t"}
    assert slow["args"]["sample"] == SLOW
    assert any(event["ph"] == "C" and event["args"]["trainer"] > 0 for event in events)


@pytest.mark.parametrize("workers", [0, 2])
def test_spans_of_a_track_do_not_overlap(workers: int, tmp_path: Path) -> None:
    seen_of(workers).to_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for track in range(workers + 1):
        spans = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == track
        )
        assert spans
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert begin >= end - 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_shows_workers_waits_and_memory(workers: int, tmp_path: Path) -> None:
    seen = seen_of(workers)
    figure = seen.plot(tmp_path / "loop.png")
    assert (tmp_path / "loop.png").read_bytes()[:4] == b"\x89PNG"
    tracks, waits, memory = figure.axes
    names = [label.get_text() for label in tracks.get_yticklabels()]
    assert names == (["trainer", "worker 0", "worker 1"] if workers else ["trainer", "making"])
    drawn = {each.get_label(): each for each in tracks.collections}
    assert len(drawn["step"].get_paths()) == 8
    assert len(waits.collections[0].get_paths()) == 8
    assert [line.get_label() for line in memory.lines] == ["trainer", "workers", "batches"]


def test_a_loop_without_a_batch_can_be_drawn_and_written(tmp_path: Path) -> None:
    with reader.DataLoader([1]) as loader, loader.profile() as seen:
        pass
    assert seen.plot().axes
    seen.to_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["bound_by"] == "start"


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_of(0)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ReaderError, match=r'pip install "lodreader\[profile\]"'):
        seen.plot()


@pytest.mark.parametrize("method", ["plot", "to_trace"])
def test_an_invalid_path_is_refused(method: str) -> None:
    with pytest.raises(ConfigTypeError, match=rf"{method} takes the path of a file, got 5"):
        getattr(seen_of(0), method)(5)


@pytest.mark.parametrize("method", ["plot", "to_trace", "__rich__"])
def test_nothing_is_drawn_before_the_end(method: str, tmp_path: Path) -> None:
    with (
        reader.DataLoader([1]) as loader,
        loader.profile() as seen,
        pytest.raises(ReaderError, match="nothing was measured yet"),
    ):
        getattr(seen, method)(*([] if method == "__rich__" else [tmp_path / "x.png"]))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_stays_plain_and_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_of(2)
    plain, terminal = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", plain)
    seen.show()
    assert plain.getvalue() == f"{seen}\n"
    assert "\x1b" not in plain.getvalue()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    seen.show()
    assert "\x1b[" in terminal.getvalue()
    assert "collate" in terminal.getvalue()
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal.truncate(0)
    seen.show()
    assert "\x1b[" not in terminal.getvalue()
