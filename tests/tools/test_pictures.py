"""The pictures of docs/ that are drawn from runs: they show what a run did."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from tools.pictures.__main__ import DOCS, PICTURES, main
from tools.pictures.slots import life
from tools.pictures.tracks import Bar, Panel, Track, draw

pytestmark = pytest.mark.usefixtures("opened_fonts")


def kinds(track: Track) -> list[str]:
    return [bar.kind for bar in track.bars]


def check_in_order(track: Track) -> None:
    """Check that no spans of a track overlap."""
    for bar, after in zip(track.bars, track.bars[1:]):
        assert bar.begin_ms <= bar.end_ms <= after.begin_ms + 1e-6, (track.name, bar, after)


@pytest.mark.alone
def test_a_slot_holds_one_batch_at_a_time_and_a_kept_batch_for_as_long_as_it_is_kept() -> None:
    panel = life(batches=12, batch_size=4, step_ms=2, kept=2, until=8)
    labels = []
    for track in panel.tracks:
        check_in_order(track)
        assert kinds(track) == ["written by a worker", "ready", "with your program"] * (
            len(track.bars) // 3
        )
        labels += [bar.label for bar in track.bars]
    assert sorted(labels) == sorted(3 * [str(number) for number in range(12)])
    (own,) = [track for track in panel.tracks if track.marks]
    assert list(own.marks.values()) == ["you keep batch 2", "you let go of it"]
    (held,) = [bar for bar in own.bars if bar.label == "2" and bar.kind == "with your program"]
    assert list(own.marks) == [held.begin_ms, held.end_ms]
    given = {bar.label: bar.begin_ms for t in panel.tracks for bar in t.bars[2::3]}
    assert given["8"] <= held.end_ms <= given["9"]
    # Others were used more than once in the meantime.
    assert len(panel.tracks) < 12


def test_an_epoch_is_shown_from_its_first_moment_to_its_last() -> None:
    pytest.importorskip("torch")
    from tools.pictures.epochs import both

    panels = both(batches=5, batch_size=4, step_ms=1)
    assert [panel.title.split(":")[0] for panel in panels] == [
        "from torch.utils.data import DataLoader",
        "from reader.compat.torch import DataLoader",
    ]
    for panel in panels:
        *workers, program = panel.tracks
        assert [track.name for track in panel.tracks] == ["worker 0", "worker 1", "your program"]
        assert kinds(program) == ["wait", "step"] * 5
        assert program.bars[0].begin_ms == 0
        for bar, after in zip(program.bars, program.bars[1:]):
            assert bar.end_ms == after.begin_ms
        whole, waited = re.fullmatch(
            r".*: (\d+) ms, of which training waits (\d+) ms", panel.title
        ).groups()  # type: ignore[union-attr]
        assert int(whole) == round(program.bars[-1].end_ms)
        assert int(waited) == round(sum(b.end_ms - b.begin_ms for b in program.bars[::2]))
        made = {}
        for track in workers:
            check_in_order(track)
            assert kinds(track) == ["fetch", "collate"] * (len(track.bars) // 2)
            made |= {bar.label: bar.end_ms for bar in track.bars[1::2]}
        assert sorted(made) == list("01234")
        for bar in program.bars[1::2]:
            assert made[bar.label] <= bar.begin_ms


def test_a_picture_drawn_twice_has_the_same_bytes_and_colors_for_light_and_dark(
    tmp_path: Path,
) -> None:
    bars = [Bar("fetch", 0, 5, "first"), Bar("collate", 5, 5.1, "second")]
    panels = [Panel("above", [Track("one", bars, {2.0: "here"})]), Panel("", [Track("two", bars)])]
    for name in ("a.svg", "b.svg"):
        draw(panels, tmp_path / name)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "b.svg").read_text(encoding="utf-8")
    for word in ("above", "one", "two", "first", "here", "fetch", "prefers-color-scheme: dark"):
        assert word in drawn
    assert "second" not in drawn, "there is no room for it"


def test_each_picture_exists_and_a_page_shows_it() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for name in PICTURES:
        assert (DOCS / f"{name}.svg").stat().st_size < 200_000
        assert f"]({name}.svg)" in pages


def test_an_unknown_picture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["moon"])
    assert ended.value.code == 2
    assert "no picture is called moon" in capsys.readouterr().err
