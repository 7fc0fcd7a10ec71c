"""Image files of other programs are read as by Pillow, or refused as by Pillow."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reader.errors import ImageError
from tools.foreign_images import __main__ as program
from tools.foreign_images import files
from tools.foreign_images.compare import Refused, differences, reference, table, unlike
from tools.foreign_images.files import SIZES, make_files
from tools.foreign_images.kinds import KINDS, PACKAGES, Kind

EACH = 4  # files of a kind
BY_PROGRAM = {
    program: [kind for kind in KINDS if kind.programs.split()[0] == program] for program in PACKAGES
}


def shell(name: str, commands: str, programs: str = "sh") -> Kind:
    return Kind(name, programs, commands, ".png")


@pytest.mark.evidence
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(kinds, id=f"{program}-{len(kinds)}_kinds")
        for program, kinds in BY_PROGRAM.items()
        if kinds
    ],
)
def test_files_of_a_program_are_read_or_refused_as_by_pillow(
    tmp_path: Path, kinds: list[Kind]
) -> None:
    made = make_files(tmp_path, EACH, kinds)
    tried = {file.kind.name for file in made.files}
    absent = {name for names in made.missing.values() for name in names}
    found = [row for file in made.files for row in differences(file.path)]
    told = f"{len(made.files)} files of {len(tried)} kinds"
    assert not found, f"of {told}:\n{table(found)}"
    # a program may refuse a size, such as a picture of one pixel, but no kind
    assert tried | absent == {kind.name for kind in kinds}, made.failed
    assert len(made.failed) <= len(made.files) / 20, made.failed
    if absent:
        pytest.skip(
            f"{' and '.join(made.missing)} not installed (make image-programs): {len(absent)} of"
            f" {len(kinds)} kinds are left out; {told} are as the reference"
        )


def test_the_table_makes_1000_files_of_60_kinds_and_more() -> None:
    assert len(KINDS) >= 60
    assert EACH * len(KINDS) >= 1000
    assert sum(map(len, BY_PROGRAM.values())) == len(KINDS)
    names = Counter(kind.name for kind in KINDS)
    assert names.most_common(1)[0][1] == 1
    for kind in KINDS:
        assert re.fullmatch(r"[a-z0-9-]+", kind.name), kind
        assert set(kind.programs.split()) <= set(PACKAGES), kind
        assert "$out" in kind.commands, kind


def test_files_are_made_once_in_many_sizes_and_scratch_files_are_removed(tmp_path: Path) -> None:
    kinds = [
        shell("copied", "cp $rgb $tmp.x; cp $tmp.x $out"),
        shell("grey", "cp $grey $out"),
    ]
    made = make_files(tmp_path, len(SIZES), kinds, jobs=2)
    assert not made.failed
    assert not made.missing
    assert [file.kind.name for file in made.files] == ["copied"] * 12 + ["grey"] * 12
    assert not any((tmp_path / "scratch").iterdir())
    sizes = [reference(file.path).shape[:2] for file in made.files]
    assert sorted(sizes) == sorted([*SIZES, *SIZES])
    made.files[0].path.write_bytes(b"kept")
    assert make_files(tmp_path, len(SIZES), kinds).files[0].path.read_bytes() == b"kept"


def test_a_file_that_a_program_did_not_make_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LIMIT_S", 0.5)
    kinds = [
        shell("refused", "echo no such color >&2; echo half >$out; exit 3"),
        shell("silent", "false"),
        shell("empty", ": >$out"),
        shell("hanging", "exec tail -f /dev/null"),
        shell("absent", "no-such-program $rgb >$out", "sh no-such-program"),
    ]
    made = make_files(tmp_path, 1, kinds)
    assert not made.files
    assert list(made.failed.values()) == [
        "no such color",
        "exit code 1",
        "exit code 0",
        "not done within 0.5 s",
    ]
    assert made.missing == {"no-such-program": ["absent"]}
    assert not any((tmp_path / "scratch").iterdir())


def test_a_good_file_a_damaged_one_and_another_kind_differ_in_nothing(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    for name in ("a.png", "a.jpg", "a.tif", "a.gif"):
        Image.fromarray(pixels).save(tmp_path / name)
        assert differences(tmp_path / name) == []
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.png").write_text("no image")
    for name in ("cut.png", "text.png"):
        with pytest.raises(Refused):
            reference(tmp_path / name)
        assert differences(tmp_path / name) == []


@pytest.mark.parametrize(
    ("wanted", "found", "text"),
    [
        ((np.zeros((2, 3, 1)),), np.zeros((3, 2, 1)), ("2 x 3 x 1 numbers", "3 x 2 x 1 numbers")),
        (
            (np.zeros((2, 3, 1), np.uint8),),
            np.full((2, 3, 1), 9, np.uint8),
            ("2 x 3 x 1 numbers, 0 at (0, 0, 0)", "9 there, 9.0 away on average, 100% differ"),
        ),
        (Refused("cut off"), np.zeros((1, 1, 3)), ("Refused: cut off", "1 x 1 x 3 numbers")),
        ((np.zeros(2),), ImageError("no image"), ("2 numbers", "ImageError: no image")),
        (Refused("cut off"), OSError("bad"), ("Refused: cut off", "OSError: bad")),
        (OSError("a fault of the tool"), ImageError("x"), ("OSError: a fault", "ImageError: x")),
    ],
)
def test_what_differs_is_told(wanted: Any, found: Any, text: tuple[str, str]) -> None:
    told = unlike(wanted, found, levels=2)
    assert told is not None
    assert told[0].startswith(text[0])
    assert told[1] == text[1]


def test_what_is_near_one_of_the_references_or_refused_by_both_is_alike() -> None:
    far, near = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 100, np.uint8)
    assert unlike((far, near), near + 2, levels=2) is None
    assert unlike((far, near), near + 3, levels=2) is not None
    assert unlike(Refused("cut off"), ImageError("cut off"), levels=0) is None


def test_the_program_prints_what_differs_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [
        Kind("own-jpeg", "sh", "false", ".jpg"),
        Kind("own-bad", "sh", "false", ".png"),
        Kind("no", "no-program", "", ".png"),
    ]
    Image.new("RGB", (1, 1)).save(tmp_path / "own-jpeg-1x1.jpg")
    Image.new("RGB", (19, 7)).save(tmp_path / "own-jpeg-7x19.jpg")
    monkeypatch.setattr(program, "KINDS", kinds)
    arguments = ["foreign_images", "--folder", str(tmp_path), "--each"]
    monkeypatch.setattr(sys, "argv", [*arguments, "1"])
    assert program.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "not made: own-bad-7x19.png: exit code 1",
        "no-program is not installed: 1 kinds are left out",
        "1 files of 1 kinds; 0 are not as the reference",
    ]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)  # the reference refuses more than twice it
    monkeypatch.setattr(sys, "argv", [*arguments, "2", "--kinds", "own-jpeg"])
    assert program.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert "own-jpeg-7x19.jpg | RGB" in lines
    assert any(line.startswith("    reference: Refused: DecompressionBombError") for line in lines)
    assert "    reader:    7 x 19 x 3 numbers" in lines
    assert lines[-1] == "2 files of 1 kinds; 1 are not as the reference"
